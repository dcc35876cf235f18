"""What `disaggc validate` prints when a spec can be planned."""

from __future__ import annotations

from disaggc.resolve.model import ResolvedSpec


def summary(resolved: ResolvedSpec) -> str:
    """`valid: 1 service, 5 nodes, target systemd`."""
    services, nodes = len(resolved.services), sum(len(group.nodes) for group in resolved.groups)
    target = f", target {resolved.target}" if resolved.target else ", no target chosen"
    return f"valid: {_counted(services, 'service')}, {_counted(nodes, 'node')}{target}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
