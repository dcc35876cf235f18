"""Engines that run as root.

An engine executes model code and parses requests from clients; as root, a fault in either owns the host.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`targets.systemd.run_as: root` where the target is systemd."""
    target = resolved.spec.targets.systemd
    if resolved.target == "systemd" and target is not None and target.run_as == "root":
        yield Finding(
            "`run_as` root gives model code and request parsers the whole host",
            ("targets", "systemd", "run_as"),
            help="write `run_as: vllm`, a system user in the groups of the devices",
        )


RULE = SpecRule(
    "DGC620",
    "root-service",
    Severity.WARNING,
    check,
    sources=("systemd.exec(5): User=",),
    fails=(
        """
        targets: {systemd: {run_as: root}}
        #                           ^ DGC620
        """,
    ),
    passes=("targets: {systemd: {run_as: vllm}}",),
)
