"""A watcher that may change things faster than it looks at them.

The cooldown is the least time between two changes. Below a few scrapes the watcher would judge a change before its
effect can be seen, and flap.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.rule import Finding, SpecRule
from disaggc.units import format_duration

_SCRAPES = 3


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`watch.interval` of zero, or `watch.cooldown` below three intervals."""
    watch = resolved.spec.watch
    if watch is None:
        return
    if watch.interval <= 0:
        yield Finding(
            "`interval` is 0 s; the watcher would never rest",
            ("watch", "interval"),
            help="write `interval: 30s`",
        )
    elif watch.cooldown < _SCRAPES * watch.interval:
        yield Finding(
            f"`cooldown` {format_duration(watch.cooldown)} is shorter than {_SCRAPES} intervals of "
            f"{format_duration(watch.interval)}; changes would be judged before their effect shows",
            ("watch", "cooldown"),
            help=f"write at least `cooldown: {_SCRAPES * watch.interval:g}s`",
        )


RULE = SpecRule(
    "DGC901",
    "watch-order",
    Severity.ERROR,
    check,
    sources=("arithmetic",),
    fails=(
        """
        watch: {interval: 30s, cooldown: 10s}
        #                                ^ DGC901
        """,
    ),
    passes=("watch: {interval: 30s, cooldown: 15min}",),
)
