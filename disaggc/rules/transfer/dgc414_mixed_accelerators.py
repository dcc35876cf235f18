"""Prefill and decode on different accelerators without a pinned attention backend.

vLLM picks the attention backend by accelerator. Its name is part of the handshake, and backends disagree on block
size and layout, so a mixed pair is refused at the first request unless the backend is named.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedService, ResolvedSpec
from disaggc.resolve.pairing import NIXL
from disaggc.rules.given import at, effective, transfers_kv
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.wording import listed


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Roles whose groups have different architectures: error where they share no group, warning where they may mix."""
    for service in resolved.services:
        if service.given.engine.connector.type not in NIXL or not transfers_kv(service):
            continue
        named = all("attention-backend" in effective(service, role) for role in ("prefill", "decode"))
        for vendor in ("nvidia", "amd"):
            prefill, decode = (_architectures(resolved, vendor, names) for names in _groups(service))
            if named or not prefill or not decode or len(prefill | decode) < 2:
                continue
            forced = not prefill & decode
            yield Finding(
                f"`attention-backend` is not set while prefill may run on {listed(sorted(prefill))} and decode on "
                f"{listed(sorted(decode))}; a mixed pair would be refused at the first request",
                at(service, "engine"),
                help="write e.g. `engine.settings: {attention-backend: FLASH_ATTN, block-size: 64}` for both roles, "
                "or restrict `constraints.<role>.nodes`",
                severity=Severity.ERROR if forced and service.mode == "disaggregated" else Severity.WARNING,
            )


def _groups(service: ResolvedService) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return service.prefill.groups, service.decode.groups


def _architectures(resolved: ResolvedSpec, vendor: str, names: tuple[str, ...]) -> set[str]:
    """Architectures of one vendor among the groups; pairs of two vendors are refused elsewhere."""
    chosen = (g.accelerator for g in resolved.groups if g.name in names and g.accelerator.vendor == vendor)
    return {accelerator.architecture or accelerator.id for accelerator in chosen}


RULE = SpecRule(
    "DGC414",
    "mixed-accelerators",
    Severity.ERROR,
    check,
    sources=("https://github.com/vllm-project/vllm/issues/38935", "vLLM 0.33: nixl/metadata.py:146-216"),
    fails=(
        """
        cluster: {nodes: {l40s: {hosts: {gpu-09: 10.0.0.9}, accelerator: {type: l40s, per_node: 8}}}}
        services:
          chat:
            engine: {vllm: 0.33.0}
        #           ^ DGC414
            constraints: {mode: disaggregated, prefill: {nodes: [h100]}, decode: {nodes: [l40s]}}
        """,
    ),
    passes=(
        """
        cluster: {nodes: {l40s: {hosts: {gpu-09: 10.0.0.9}, accelerator: {type: l40s, per_node: 8}}}}
        services:
          chat:
            engine: {settings: {attention-backend: FLASH_ATTN}}
            constraints: {mode: disaggregated, prefill: {nodes: [h100]}, decode: {nodes: [l40s]}}
        """,
    ),
)
