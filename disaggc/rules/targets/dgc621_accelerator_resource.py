"""An extended resource of another vendor.

A pod that asks for `amd.com/gpu` on NVIDIA nodes stays pending for ever.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.wording import listed

_DOMAINS = {"nvidia.com": "nvidia", "amd.com": "amd"}


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`accelerator_resource` in a vendor's domain while the cluster has accelerators of another."""
    target = resolved.spec.targets.kubernetes
    if resolved.target != "kubernetes" or target is None or target.accelerator_resource is None:
        return
    vendor = _DOMAINS.get(target.accelerator_resource.partition("/")[0])
    others = sorted(
        {group.name for group in resolved.groups if group.accelerator.vendor not in (vendor, "cpu")}
    )
    if vendor is not None and others:
        yield Finding(
            f"`accelerator_resource` {target.accelerator_resource} is {vendor}'s; pods on {listed(others)} would stay "
            "pending",
            ("targets", "kubernetes", "accelerator_resource"),
            help="remove it; each node group then asks for its own vendor's resource",
        )


RULE = SpecRule(
    "DGC621",
    "accelerator-resource",
    Severity.ERROR,
    check,
    sources=("https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/",),
    fails=(
        """
        target: kubernetes
        targets: {kubernetes: {accelerator_resource: amd.com/gpu}}
        #                                            ^ DGC621
        """,
    ),
    passes=(
        """
        target: kubernetes
        targets: {kubernetes: {accelerator_resource: nvidia.com/gpu}}
        """,
    ),
)
