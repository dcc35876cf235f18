"""Engines whose handshake would fail, or should.

The connector's handshake is recomputed as far as the plan decides it: model, revision, dtypes, attention backend,
speculation and the state of the hybrid cache manager must be the same text on both sides. The rest of the list is
compared by nobody at run time and breaks answers instead: context, block size, tokenizer, template, parsers.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.plan import Pool
from disaggc.rules.planned import argument, linked, service_path, text
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule
from disaggc.rules.transfer.dgc401_roles_differ import SHARED

_IDENTITY = ("served-model-name", "revision", "speculative-config", "enable-prefix-caching", "seed")
_SHARED_ENV = ("PYTHONHASHSEED", "VLLM_KV_CACHE_LAYOUT", "VLLM_SSM_CONV_STATE_LAYOUT")


def check(planned: Planned) -> Iterator[Finding]:
    """Every flag and variable of the handshake and of SHARED, over both ends of every KV link."""
    for service in planned.plan.services:
        for prefill, decode in linked(service):
            sides = [_identity(prefill), _identity(decode)]
            for name in sorted({*sides[0], *sides[1]}):
                p, d = (side.get(name, "unset") for side in sides)
                if p != d:
                    yield Finding(
                        f"{name} is {p} on {prefill.address} and {d} on {decode.address}",
                        service_path(service),
                    )


def _identity(pool: Pool) -> dict[str, str]:
    found: dict[str, str] = {}
    for replica in pool.replicas[:1]:
        for name in (*SHARED, *_IDENTITY):
            for flag in (name, f"no-{name}"):
                given = argument(replica, flag)
                if given is not None:
                    found[f"--{flag}"] = text(given.value) or "set"
        found |= {v.name: text(v.value) or v.value.kind for v in replica.env if v.name in _SHARED_ENV}
    return found


RULE = PlanRule(
    "DGC451",
    "handshake-differs",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: nixl/metadata.py:146-216", "https://github.com/vllm-project/vllm/issues/52234"),
    fails=(
        (Edit("services/chat/pools/decode/replicas/*/arguments/--kv-cache-dtype", "fp8"),),
        (Edit("services/chat/pools/decode/replicas/*/arguments/--max-model-len", "4096"),),
        (Edit("services/chat/pools/decode/replicas/*/arguments/--reasoning-parser", "deepseek_r1"),),
    ),
)
