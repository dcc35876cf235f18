"""A watcher that acts on any gain.

Predictions carry a range; a gain below a few per cent is noise, and acting on it exchanges replicas for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.rule import Finding, SpecRule

_NOISE = 0.01


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`watch.mode: apply` with `min_gain` below 1 %."""
    watch = resolved.spec.watch
    if watch is not None and watch.mode == "apply" and watch.min_gain < _NOISE:
        yield Finding(
            f"`min_gain` {watch.min_gain:.1%} is below 1 %; the watcher would roll out noise",
            ("watch", "min_gain"),
            help="write `min_gain: 5%`",
        )


RULE = SpecRule(
    "DGC902",
    "watch-without-gain",
    Severity.WARNING,
    check,
    sources=("range of predictions on priors",),
    fails=(
        """
        watch: {mode: apply, min_gain: 0%}
        #                              ^ DGC902
        """,
    ),
    passes=("watch: {mode: apply, min_gain: 5%}",),
)
