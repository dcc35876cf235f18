"""A flag that the pinned vLLM does not have.

vLLM refuses to start on an unknown flag, so every replica of the service would fail in a restart loop. The flags of
each version come from a snapshot made from that vLLM itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.owned import OWNED_FLAGS
from disaggc.rules.given import flags
from disaggc.rules.rule import Finding, SpecRule
from disaggc.spec.near import nearest


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Settings that are neither a flag, nor an alias, nor a `no-` form of one."""
    for service in resolved.services:
        known = service.snapshot.flags
        for given in flags(service):
            gone = service.snapshot.removed_flags or {}
            if given.facts is not None or given.flag in gone or given.flag in OWNED_FLAGS:
                continue
            close = nearest(given.flag, known)
            yield Finding(
                f"`{given.written}` is not a flag of vLLM {service.given.engine.vllm}; engines would not start",
                given.path,
                help=f"write `{close}`" if close else "remove it, or pin a vLLM version that has it",
                notes=(f"checked against the flags of vLLM {service.snapshot.text}",),
                at_key=True,
            )


RULE = SpecRule(
    "DGC210",
    "unknown-flag",
    Severity.ERROR,
    check,
    sources=("vLLM: vllm/engine/arg_utils.py and vllm/entrypoints/openai/cli_args.py of each version",),
    fails=(
        """
        services: {chat: {engine: {settings: {max-modle-len: 4096}}}}
        #                                     ^ DGC210
        """,
        """
        services:
          chat:
            engine:
              prefill:
                settings:
                  enable-chunky-prefill: true
        #         ^ DGC210
        """,
    ),
    passes=("services: {chat: {engine: {settings: {max-model-len: 4096, no-enable-log-requests: true}}}}",),
)
