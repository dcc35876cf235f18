"""Which routing tables the proxies of a local stack are on, beside the files of its folder. Prints nothing."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from disaggc.hosts.readiness import reported
from disaggc.ir.plan import Role
from disaggc.ir.stack import Stack, StackProgram
from disaggc.routing.live import draining
from disaggc.routing.roles import seats
from disaggc.routing.table import ReplicaState, RoutingTable, load_table
from disaggc.routing.text import TableError

ACKNOWLEDGED_S = 40.0
"""A proxy looks twice a second, gives its workers 10 s for a table, and 10 s more to go back from one they refuse."""
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class RoutingState:
    """One service's table. file: generation of its routing file, None where that cannot be read.

    in_effect: generation the proxy is on, None where it does not say. looked: whether the proxy has decided about the
    file as it is now. refusal: why the file is not in effect. drained: replicas that get nothing new under the table in
    effect. closed: why nothing is served under it.
    """

    service: str
    file: int | None
    in_effect: int | None
    looked: bool
    refusal: str | None
    drained: tuple[str, ...] = ()
    closed: str | None = None

    @property
    def good(self) -> bool:
        """Whether the file is in effect, or what administration made of just this file."""
        return self.looked and self.refusal is None and self.in_effect is not None

    @property
    def sentence(self) -> str:
        """How it stands."""
        if self.refusal is not None:
            return f"{self.service}: the routing file is not in effect: {self.refusal}"
        if self.in_effect is None:
            return f"{self.service}: the proxy does not say which routing is in effect"
        if not self.looked:
            return f"{self.service}: routing generation {self.in_effect} in effect, not yet {self.file} of the file"
        said = f"{self.service}: routing generation {self.in_effect} in effect"
        if self.in_effect != self.file:
            said += f", made by administration from generation {self.file} of the file"
        if self.closed is not None:
            return f"{said}; {self.closed}"
        return f"{said}; drained: {', '.join(self.drained)}" if self.drained else said


def routing_states(folder: Path, stack: Stack) -> tuple[RoutingState, ...]:
    """Every proxy's table as it is now."""
    return tuple(_states(folder, stack))


def _states(folder: Path, stack: Stack) -> Iterator[RoutingState]:
    for program in stack.programs:
        if program.kind == "proxy":
            yield _state(folder, program)


def _state(folder: Path, program: StackProgram) -> RoutingState:
    service = program.address.partition("/")[0]
    path = folder / service / "routing.json"
    try:
        content = path.read_bytes()
        table = load_table(content)
    except (OSError, TableError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else str(problem)
        return RoutingState(service, None, None, looked=False, refusal=f"`{path}`: {why}")
    admin = f"http://127.0.0.1:{table.listen.admin_port}"
    said = reported(f"{admin}/health")
    looked = said.get("routing_file_sha256") == hashlib.sha256(content).hexdigest()
    generation, refusal = said.get("generation"), said.get("routing_file_rejected")
    current = _in_effect(admin) if looked else None
    return RoutingState(
        service,
        table.generation,
        generation if isinstance(generation, int) else None,
        looked=looked,
        refusal=str(refusal) if looked and refusal is not None else None,
        drained=tuple(sorted(draining(current))) if current is not None else (),
        closed=_closed(admin, current) if current is not None else None,
    )


def closed(folder: Path, program: StackProgram) -> str | None:
    """Why a proxy will never serve, however long one waits; None where it may."""
    found = _state(folder, program)
    return None if found.closed is None else f"{found.service}: {found.closed}"


def _in_effect(admin: str) -> RoutingTable | None:
    try:
        return load_table(json.dumps(reported(f"{admin}/admin/routing")))
    except TableError:
        return None


def _closed(admin: str, table: RoutingTable) -> str | None:
    """Whether all replicas of a role are drained; a role that nobody has is what the table wants."""
    serving = [seat for seat in seats(table) if seat.role is not Role.PREFILL]
    prefills = [seat for seat in seats(table) if seat.role is Role.PREFILL]
    for sides in (serving, prefills if table.on_prefill_failure != "decode-locally" else []):
        if sides and all(seat.entry.state is ReplicaState.DRAINING for seat in sides):
            names = ", ".join(seat.entry.address for seat in sides)
            return (
                f"all {sides[0].role} replicas are drained ({names}), so nothing is served; take one back with "
                f"`curl -X POST '{admin}/admin/undrain?replica={sides[0].entry.address}'`"
            )
    return None


def acknowledged(
    folder: Path, stack: Stack, *, timeout_s: float = ACKNOWLEDGED_S
) -> tuple[RoutingState, ...]:
    """Every proxy's table, once each has decided about its file, or as it is when the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = routing_states(folder, stack)
        if all(one.good or one.refusal is not None for one in found) or time.monotonic() > deadline:
            return found
        time.sleep(POLL_S)
