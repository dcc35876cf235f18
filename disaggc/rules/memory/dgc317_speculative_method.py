"""A speculative method that vLLM does not know, or that the model cannot use.

The draft configuration is part of the connector's handshake; the compiler writes it equally on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.wording import listed
from disaggc.spec.near import nearest

_NEED_MODEL = frozenset({"eagle", "eagle3", "medusa", "mlp_speculator", "draft_model", "dflash", "dspark"})
_OWN_LAYERS = frozenset(
    {"mtp", "deepseek_mtp", "glm4_moe_mtp", "qwen3_next_mtp", "mimo_mtp", "ernie_mtp", "longcat_flash_mtp"}
)
_FREE = frozenset({"ngram", "ngram_gpu", "suffix"})
_METHODS = _NEED_MODEL | _OWN_LAYERS | _FREE


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Unknown methods; MTP for a model without such layers, unless a draft model brings them."""
    for service in resolved.services:
        given = service.given.speculative
        if given is None:
            continue
        place = at(service, "speculative", "method")
        if given.method not in _METHODS:
            close = nearest(given.method, _METHODS)
            yield Finding(
                f"`method` {given.method} is not a speculative method of vLLM",
                place,
                help=f"write `{close}`" if close else f"write one of {listed(sorted(_METHODS), most=20)}",
            )
        elif given.method in _OWN_LAYERS and not service.model.mtp_layers and given.model is None:
            yield Finding(
                f"`method` {given.method} needs multi-token-prediction layers, {service.model.id} has 0",
                place,
                help="write another method, e.g. `eagle3` with `model:`",
            )


RULE = SpecRule(
    "DGC317",
    "speculative-method",
    Severity.ERROR,
    check,
    sources=("vLLM: vllm/config/speculative.py, SpeculativeMethod",),
    fails=(
        """
        services: {chat: {speculative: {method: eagel3, tokens: 3, acceptance: 60%, model: org/draft}}}
        #                                       ^ DGC317
        """,
        """
        services: {chat: {speculative: {method: mtp, tokens: 1, acceptance: 80%}}}
        #                                       ^ DGC317
        """,
    ),
    passes=("services: {chat: {speculative: {method: ngram, tokens: 3, acceptance: 30%}}}",),
)
