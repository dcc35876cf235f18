"""A Kubernetes version that the manifests cannot serve.

Manifests are written for the API versions of 1.20 and later.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.rule import Finding, SpecRule

_OLDEST = 20


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`kube_version` below 1.20 where the target is kubernetes."""
    target = resolved.spec.targets.kubernetes
    if resolved.target == "kubernetes" and target is not None:
        minor = int(target.kube_version.partition(".")[2])
        if minor < _OLDEST:
            yield Finding(
                f"`kube_version` {target.kube_version} is older than 1.{_OLDEST}, the oldest that is supported",
                ("targets", "kubernetes", "kube_version"),
                help=f'write `kube_version: "1.{_OLDEST}"` or newer',
            )


RULE = SpecRule(
    "DGC614",
    "kube-version",
    Severity.ERROR,
    check,
    sources=("https://kubernetes.io/docs/reference/using-api/deprecation-guide/",),
    fails=(
        """
        target: kubernetes
        targets: {kubernetes: {kube_version: "1.16"}}
        #                                    ^ DGC614
        """,
    ),
    passes=(
        """
        target: kubernetes
        targets: {kubernetes: {kube_version: "1.33"}}
        """,
    ),
)
