"""A container target without an image.

Compose and Kubernetes run the engine from an image; every vendor whose nodes a service may use needs one.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import active_parts, groups


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Services without `image` for a vendor they may run on, where the target is compose or kubernetes."""
    if resolved.target not in ("compose", "kubernetes"):
        return
    for service in resolved.services:
        engine = service.given.engine
        allowed = (group for part in active_parts(service) for group in groups(resolved, service, part))
        for vendor in sorted({group.accelerator.vendor for group in allowed}):
            if engine.image is None and vendor not in engine.images:
                yield Finding(
                    f"`image` is missing for {vendor} nodes, target {resolved.target} runs engines from one",
                    at(service, "engine"),
                    help="write `image: <registry>/<name>@sha256:<digest>`",
                    at_key=True,
                )


RULE = SpecRule(
    "DGC610",
    "image-missing",
    Severity.ERROR,
    check,
    sources=("Kubernetes API: containers[].image is required",),
    fails=(
        """
        target: kubernetes
        services: {chat: {engine: {image: null}}}
        #                 ^ DGC610
        """,
    ),
    passes=("target: compose",),
    suppressible=False,
)
