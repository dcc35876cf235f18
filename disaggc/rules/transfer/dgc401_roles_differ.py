"""Settings that prefill and decode must share.

The handshake compares some of them at the first request (dtype, KV dtype, attention backend, speculation); nothing
at all compares the others: with different context lengths, tokenizers, chat templates or parsers one role accepts
what the other refuses, and requests hang or answers change with HTTP 200.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Label, Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import effective, transfers_kv
from disaggc.rules.rule import Finding, SpecRule

SHARED = (
    "max-model-len",
    "dtype",
    "kv-cache-dtype",
    "block-size",
    "attention-backend",
    "quantization",
    "load-format",
    "tokenizer",
    "tokenizer-mode",
    "tokenizer-revision",
    "code-revision",
    "hf-overrides",
    "config-format",
    "trust-remote-code",
    "chat-template",
    "chat-template-content-format",
    "generation-config",
    "override-generation-config",
    "enable-auto-tool-choice",
    "tool-call-parser",
    "tool-parser-plugin",
    "reasoning-parser",
    "enable-lora",
    "lora-modules",
    "max-lora-rank",
    "disable-hybrid-kv-cache-manager",
    "prefix-caching-hash-algo",
    "mamba-cache-mode",
    "mamba-block-size",
    "mamba-cache-dtype",
    "limit-mm-per-prompt",
    "mm-processor-kwargs",
)


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Flags of SHARED whose value reaches one role only, or the two roles differently."""
    for service in resolved.services:
        if not transfers_kv(service):
            continue
        prefill, decode = effective(service, "prefill"), effective(service, "decode")
        for flag in SHARED:
            p, d = prefill.get(flag), decode.get(flag)
            if p is None and d is None:
                continue
            if p is not None and d is not None:
                if (p.value, p.negated) == (d.value, d.negated):
                    continue
                later = d if len(d.roles) == 1 else p
                other = p if later is d else d
                yield Finding(
                    f"`{flag}` is {p.value!r} on prefill and {d.value!r} on decode; they must be equal to exchange KV",
                    later.path,
                    help=f"write `{flag}` once, under `engine.settings`",
                    labels=(Label(other.path, "the other role's value"),),
                )
                continue
            only = p or d
            if only is not None:
                here, there = ("prefill", "decode") if p is not None else ("decode", "prefill")
                yield Finding(
                    f"`{flag}` is set on {here} and not on {there}; they must be equal to exchange KV",
                    only.path,
                    help="move it to `engine.settings`",
                    at_key=True,
                )


RULE = SpecRule(
    "DGC401",
    "roles-differ",
    Severity.ERROR,
    check,
    sources=(
        "vLLM 0.33: nixl/metadata.py:146-216",
        "https://github.com/SemiAnalysisAI/InferenceX/pull/2257",
        "https://github.com/vllm-project/vllm/issues/37703",
    ),
    fails=(
        """
        services: {chat: {engine: {decode: {settings: {max-model-len: 4096}}}}}
        #                                                             ^ DGC401
        """,
        """
        services: {chat: {engine: {prefill: {settings: {kv-cache-dtype: fp8}}}}}
        #                                               ^ DGC401
        """,
    ),
    passes=(
        "services: {chat: {engine: {settings: {kv-cache-dtype: fp8}, decode: {settings: {stream-interval: 2}}}}}",
    ),
    suppressible=False,
)
