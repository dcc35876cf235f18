"""Automatic tool choice without a parser.

vLLM needs `tool-call-parser` to turn the model's text into tool calls and refuses to start without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import effective, flags_named
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`enable-auto-tool-choice` reaching a role that has no `tool-call-parser`."""
    for service in resolved.services:
        for given in flags_named(service, "enable-auto-tool-choice"):
            lacking = [role for role in given.roles if "tool-call-parser" not in effective(service, role)]
            if given.on and lacking:
                yield Finding(
                    f"`enable-auto-tool-choice` needs `tool-call-parser`, which {' and '.join(lacking)} lacks",
                    given.path,
                    help="write e.g. `tool-call-parser: hermes` under `engine.settings`",
                )


RULE = SpecRule(
    "DGC319",
    "tool-parser",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/entrypoints/common/cli_args.py:123-129",),
    fails=(
        """
        services: {chat: {engine: {settings: {enable-auto-tool-choice: true}}}}
        #                                                              ^ DGC319
        """,
    ),
    passes=(
        "services: {chat: {engine: {settings: {enable-auto-tool-choice: true, tool-call-parser: hermes}}}}",
    ),
)
