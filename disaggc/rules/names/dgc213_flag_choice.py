"""A value that is not among the flag's choices.

vLLM's parser refuses it at start. Choices differ between versions, so a recipe for another version may name one
that has gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.owned import OWNED_FLAGS
from disaggc.rules.given import flags
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.wording import listed
from disaggc.spec.near import nearest


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Flags with a closed list of choices whose value is another one."""
    for service in resolved.services:
        for given in flags(service):
            if given.facts is None or not given.facts.choices or given.key or given.flag in OWNED_FLAGS:
                continue
            values = given.value if isinstance(given.value, list) else [given.value]
            for value in values:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                if value is None or isinstance(value, dict) or text in given.facts.choices:
                    continue
                close = nearest(text, given.facts.choices)
                yield Finding(
                    f"`{given.written}` takes {listed(given.facts.choices)}, not `{text}`; "
                    "every engine would refuse to start",
                    given.path,
                    help=f"write `{close}`" if close else f"write one of {listed(given.facts.choices)}",
                )


RULE = SpecRule(
    "DGC213",
    "flag-choice",
    Severity.ERROR,
    check,
    sources=("vLLM: Literal types of vllm/config/*.py of each version",),
    fails=(
        """
        services: {chat: {engine: {settings: {dtype: bfloat61}}}}
        #                                            ^ DGC213
        """,
    ),
    passes=("services: {chat: {engine: {settings: {dtype: bfloat16}}}}",),
)
