"""One image for the accelerators of two vendors.

A CUDA and a ROCm build never share a digest, so one of the two would not find its accelerators.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import active_parts, groups


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Services that may run on two vendors and have the same image for both."""
    if resolved.target in ("systemd", "local"):
        return
    for service in resolved.services:
        engine = service.given.engine
        allowed = (group for part in active_parts(service) for group in groups(resolved, service, part))
        vendors = sorted({group.accelerator.vendor for group in allowed} - {"cpu"})
        images = {vendor: engine.images.get(vendor, engine.image) for vendor in vendors}
        if len(vendors) > 1 and len(set(images.values())) < len(vendors):
            field = "images" if engine.images else "image"
            yield Finding(
                f"`{field}` gives {' and '.join(vendors)} nodes the same image; a build serves one vendor",
                at(service, "engine", field),
                help="write `images: {nvidia: ..., amd: ...}`, or restrict the roles with `constraints.<role>.nodes`",
            )


RULE = SpecRule(
    "DGC613",
    "image-of-two-vendors",
    Severity.ERROR,
    check,
    sources=("vLLM: separate images for CUDA and ROCm",),
    fails=(
        """
        cluster: {nodes: {amd: {hosts: {gpu-09: 10.0.0.9}, accelerator: {type: mi300x, per_node: 8}}}}
        target: compose
        services:
          chat:
            engine:
              settings: {attention-backend: TRITON_ATTN}
              image: example.org/vllm@sha256:1111111111111111111111111111111111111111111111111111111111111111
        #            ^ DGC613
        """,
    ),
    passes=(
        """
        cluster: {nodes: {amd: {hosts: {gpu-09: 10.0.0.9}, accelerator: {type: mi300x, per_node: 8}}}}
        target: compose
        services:
          chat:
            engine:
              settings: {attention-backend: TRITON_ATTN}
              images:
                amd: example.org/rocm@sha256:3333333333333333333333333333333333333333333333333333333333333333
        """,
    ),
)
