"""Prefill on one vendor's accelerators and decode on another's.

A CUDA and a ROCm image never share a build, the handshake compares version and attention backend, and no plain vLLM
has been shown to hand KV from one vendor to the other.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Label, Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Roles whose groups share no vendor: error where P/D is forced, warning under auto."""
    for service in resolved.services:
        if service.mode in ("colocated", "flexible"):
            continue
        prefill, decode = (
            {g.accelerator.vendor for g in resolved.groups if g.name in names}
            for names in (service.prefill.groups, service.decode.groups)
        )
        if not prefill or not decode or prefill & decode:
            continue
        forced = service.mode == "disaggregated"
        first, second = (" and ".join(sorted(vendors)) for vendors in (prefill, decode))
        yield Finding(
            f"`constraints` put prefill on {first} and decode on {second} accelerators, which cannot exchange KV",
            at(service, "constraints", "prefill"),
            help="give both roles node groups of one vendor",
            labels=(Label(at(service, "constraints", "decode"), "decode's groups"),),
            severity=Severity.ERROR if forced else Severity.WARNING,
        )


RULE = SpecRule(
    "DGC415",
    "vendors-cannot-pair",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: nixl/metadata.py:146-216 (version and attention backend are compared)",),
    fails=(
        """
        cluster: {nodes: {amd: {hosts: {gpu-09: 10.0.0.9}, accelerator: {type: mi300x, per_node: 8}}}}
        services:
          chat:
            engine:
              settings: {attention-backend: TRITON_ATTN}
              images:
                amd: example.org/rocm@sha256:3333333333333333333333333333333333333333333333333333333333333333
            constraints:
              mode: disaggregated
              prefill: {nodes: [h100]}
        #              ^ DGC415
              decode: {nodes: [amd]}
        """,
    ),
    passes=("services: {chat: {constraints: {mode: disaggregated, prefill: {nodes: [h100]}}}}",),
    suppressible=False,
)
