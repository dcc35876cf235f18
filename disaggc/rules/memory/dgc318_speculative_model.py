"""A speculative method without its draft model, or with one it does not use.

EAGLE and similar methods run a second, small model; without its name vLLM stops at start.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule

_NEED_MODEL = frozenset({"eagle", "eagle3", "medusa", "mlp_speculator", "draft_model", "dflash", "dspark"})
_NO_MODEL = frozenset({"ngram", "ngram_gpu", "suffix"})


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`speculative.model` absent where the method needs it, or present where nothing would read it."""
    for service in resolved.services:
        given = service.given.speculative
        if given is None:
            continue
        if given.method in _NEED_MODEL and given.model is None:
            yield Finding(
                f"`method` {given.method} needs a draft model; the engine would stop at start",
                at(service, "speculative", "method"),
                help="write `model: <id or path of the draft model>`",
            )
        elif given.method in _NO_MODEL and given.model is not None:
            yield Finding(
                f"`model` is not used by the speculative method {given.method}",
                at(service, "speculative", "model"),
                help="remove it",
            )


RULE = SpecRule(
    "DGC318",
    "speculative-model",
    Severity.ERROR,
    check,
    sources=("vLLM: vllm/config/speculative.py",),
    fails=(
        """
        services: {chat: {speculative: {method: eagle3, tokens: 3, acceptance: 60%}}}
        #                                       ^ DGC318
        """,
        """
        services: {chat: {speculative: {method: ngram, tokens: 3, acceptance: 30%, model: org/draft}}}
        #                                                                                 ^ DGC318
        """,
    ),
    passes=(
        "services: {chat: {speculative: {method: eagle3, tokens: 3, acceptance: 60%, model: org/draft}}}",
    ),
)
