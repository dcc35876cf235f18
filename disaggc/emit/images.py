"""Images of container targets: what must be there, and what stands in for a proxy image that is not given."""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics.model import Diagnostic, error, warning
from disaggc.ir.plan import DeploymentPlan, ServicePlan


def image_findings(plan: DeploymentPlan, target: str) -> Iterator[Diagnostic]:
    """DGC602 where engines have no image, DGC606 where the proxy borrows theirs."""
    for service in plan.services:
        at = ("services", service.name)
        for pool in service.pools:
            if pool.image is None:
                yield error(
                    "DGC602",
                    f"`services.{service.name}.engine.image` is not set, "
                    f"{target} needs an image for the {pool.vendor} pool `{pool.address}`",
                    (*at, "engine"),
                    help="write `image: registry/name@sha256:...`",
                )
        if service.proxy.image is None:
            yield warning(
                "DGC606",
                f"`services.{service.name}.proxy.image` is not set, so the proxy runs in the engines' image, "
                "which must then hold the `disaggc` command",
                (*at, "proxy"),
                help="write `image: registry/disaggc@sha256:...`",
            )


def proxy_image(service: ServicePlan) -> str:
    """The proxy's image, else that of the first pool."""
    return service.proxy.image or next(pool.image for pool in service.pools if pool.image is not None)
