"""Pools that exchange KV and run different builds.

The handshake compares the version and refuses every request between different ones; two vendors' accelerators have
never been shown to exchange KV at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.rules.planned import linked, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """Vendor and image of both ends of every KV link."""
    for service in planned.plan.services:
        for prefill, decode in linked(service):
            if prefill.vendor != decode.vendor:
                yield Finding(
                    f"{prefill.address} ({prefill.vendor}) and {decode.address} ({decode.vendor}) cannot exchange KV",
                    service_path(service),
                )
            elif prefill.image != decode.image:
                yield Finding(
                    f"{prefill.address} and {decode.address} run different images, {prefill.image} and {decode.image}",
                    service_path(service),
                )


RULE = PlanRule(
    "DGC450",
    "builds-differ",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: nixl/metadata.py:146-216", "https://github.com/vllm-project/vllm/pull/47021"),
    fails=(
        (Edit("services/chat/pools/decode/image", "example.org/vllm@sha256:" + "9" * 64),),
        (Edit("services/chat/pools/decode/vendor", "amd"),),
    ),
)
