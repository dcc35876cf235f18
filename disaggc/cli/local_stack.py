"""What `disaggc local` does with a built folder: obstacles to a start, waiting, how things are. Prints nothing."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from disaggc.hosts.readiness import Answer, answer, taken
from disaggc.hosts.supervision import CONFIGURATION, ProcessState, Supervision
from disaggc.ir.stack import Stack, StackError, StackProgram, load_stack

STACK = "stack.json"
BROKEN = frozenset({"FATAL", "EXITED"})
POLL_S = 0.5
TAIL_LINES = 12


class StackProblemError(Exception):
    """The stack cannot be read, started or waited for; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ProgramStatus:
    """One process as it is. state: supervisord's word, or `down` where nothing supervises.

    answer: what its address says, None where it has none or does not run. ends: how often it ended unasked.
    """

    program: StackProgram
    state: str
    pid: int | None
    up_s: float
    answer: Answer | None
    ends: int

    @property
    def ready(self) -> bool:
        """Whether it serves; the later nodes of a replica serve nothing, and need only run."""
        return self.state == "running" and (self.program.ready is None or self.answer == "ready")


def read_stack(folder: Path) -> Stack:
    """The processes of a built folder."""
    try:
        text = (folder / STACK).read_text(encoding="utf-8")
        if not (folder / CONFIGURATION).is_file():
            raise StackProblemError(f"`{folder / CONFIGURATION}` is missing; build the folder again")
        return load_stack(text)
    except OSError as problem:
        raise StackProblemError(
            f"`{folder / STACK}` cannot be read ({problem.strerror}); write it with "
            f"`disaggc build SPEC --target local --out {folder}`"
        ) from None
    except StackError as problem:
        raise StackProblemError(f"`{folder / STACK}` is not what build writes: {problem}") from None


def search_path(environ: Mapping[str, str]) -> str:
    """The caller's search path, behind the place of the disaggc that is running."""
    own = str(Path(sys.executable).parent)
    return os.pathsep.join((own, environ.get("PATH", os.defpath)))


def obstacles(stack: Stack, environ: Mapping[str, str]) -> Iterator[str]:
    """One sentence for each thing that a start would run into."""
    path = search_path(environ)
    for executable, kind in dict.fromkeys((program.executable, program.kind) for program in stack.programs):
        if shutil.which(executable, path=path) is None:
            where = "is not an executable file" if "/" in executable else "is not on the search path"
            double = "; or build with `--set targets.local.engine=sim` for engine doubles, which need no vLLM"
            yield (
                f"`{executable}` {where}; install it, or correct `command` in the spec and build again"
                f"{double if kind == 'engine' else ''}"
            )
    for name in dict.fromkeys(name for program in stack.programs for name in program.secrets):
        if not environ.get(name):
            yield f"the variable {name} is not set; it comes from a secret, so export it before `local up`"
    for program in stack.programs:
        for port in program.ports:
            if taken(port):
                yield f"port {port} of {program.address} is in use; stop what listens there, or change `base_port`"


def bring_up(supervision: Supervision, stack: Stack, environ: Mapping[str, str]) -> str:
    """Start what does not run, take over what changed; a sentence on what was done."""
    if supervision.running():
        touched = {*supervision.update(), *supervision.start_stopped()}
        states = {state.name: state.state for state in supervision.states()}
        for program in stack.programs:
            if program.kind != "proxy" or program.name in touched:
                continue
            if states.get(program.name) == "RUNNING" and not all(taken(port) for port in program.ports):
                # Its routing file gives it other ports now, and ports are what a running proxy cannot change.
                supervision.restart(program.name)
                touched.add(program.name)
            else:
                supervision.signal(program.name, "HUP")
        return (
            f"already up; started {', '.join(sorted(touched))}" if touched else "already up, nothing to start"
        )
    against = list(obstacles(stack, environ))
    if against:
        raise StackProblemError("\n".join(against))
    supervision.start({**environ, "PATH": search_path(environ)})
    return f"started {len(stack.programs)} processes"


def status(supervision: Supervision, stack: Stack) -> tuple[ProgramStatus, ...]:
    """Every process as it is now; all are asked at once, so that several silent ones take the time of one."""
    states: dict[str, ProcessState] = {}
    ends: Mapping[str, int] = {}
    if supervision.running():
        states = {state.name: state for state in supervision.states()}
        ends = supervision.ends()

    def one(program: StackProgram) -> ProgramStatus:
        return _status(program, states.get(program.name), ends.get(program.name, 0))

    with ThreadPoolExecutor(max_workers=max(1, len(stack.programs))) as pool:
        return tuple(pool.map(one, stack.programs))


def _status(program: StackProgram, found: ProcessState | None, ends: int = 0) -> ProgramStatus:
    if found is None:
        return ProgramStatus(program, "down", None, 0.0, answer=None, ends=0)
    asked = program.ready if found.state == "RUNNING" else None
    said = None if asked is None else answer(asked)
    return ProgramStatus(program, found.state.lower(), found.pid or None, found.up_s, answer=said, ends=ends)


def wait_ready(
    supervision: Supervision,
    stack: Stack,
    *,
    timeout_s: float,
    said: Callable[[str], None],
    hopeless: Callable[[StackProgram], str | None],
) -> None:
    """Until every process serves; StackProblemError with the log's end when one gave up or time ran out.

    hopeless: why a proxy that runs will not serve however long one waits, which ends the wait.
    """
    begun = time.monotonic()
    waiting = {program.name: program for program in stack.programs}
    while waiting:
        states = {state.name: state for state in supervision.states()}
        engines = any(program.kind == "engine" for program in waiting.values())
        for name, program in list(waiting.items()):
            found = states.get(name)
            runs = found is not None and found.state == "RUNNING"
            if program.kind == "proxy" and runs and (why := hopeless(program)) is not None:
                raise StackProblemError(why)
            # A proxy is ready as soon as nothing has told it otherwise; only after its engines it means something.
            if engines and program.kind == "proxy":
                continue
            if found is None or found.state in BROKEN:
                why = "is not known to supervisord" if found is None else found.description
                raise StackProblemError(f"{name} did not start ({why})\n{tail(supervision.log(name))}")
            if _status(program, found).ready:
                del waiting[name]
                said(f"{program.address} is ready after {time.monotonic() - begun:.0f} s")
        if waiting and time.monotonic() - begun > timeout_s:
            name = next(iter(waiting))
            raise StackProblemError(
                f"{', '.join(waiting)}: not ready within {timeout_s:.0f} s; it goes on starting, see "
                f"`disaggc local status`\n{tail(supervision.log(name))}"
            )
        if waiting:
            time.sleep(POLL_S)


def tail(log: Path) -> str:
    """The last lines of a log, each marked as quoted."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"it wrote nothing to {log}"
    return "\n".join((f"the end of {log}:", *(f"  | {line}" for line in lines[-TAIL_LINES:])))
