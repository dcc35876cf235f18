"""Which processors an engine is kept on: those near its accelerators, unless that is the whole node."""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.emit.engine_part import EnginePart


@dataclass(frozen=True, slots=True)
class Near:
    """cpus: as the kernel writes sets of processors. domain: the one domain, None where there are several."""

    cpus: str
    domain: int | None


def near(part: EnginePart) -> Near | None:
    """None where the spec says nothing, where a device is in no domain, or where the engine spans the whole node."""
    own = set(part.slot.devices)
    touched = [index for index, domain in enumerate(part.node.numa) if own & set(domain.devices)]
    known = {device for index in touched for device in part.node.numa[index].devices}
    if not touched or not own <= known or len(touched) == len(part.node.numa):
        return None
    return Near(
        ",".join(part.node.numa[index].cpus for index in touched), touched[0] if len(touched) == 1 else None
    )
