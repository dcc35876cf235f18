"""One supervisord of a folder that `build --target local` wrote: start it, ask it, stop it. Decides nothing.

Speaks supervisord's own XML-RPC over its Unix socket, which only its user may open.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disaggc.hosts.processes import take_back

CONFIGURATION = "supervisord.conf"
LONGEST_SOCKET = 100
"""Bytes of a Unix socket's path: 108 on Linux, 104 on macOS, and supervisord first binds one with its pid appended."""
START_S = 15.0
_POLL_S = 0.1
_ENDED = re.compile(r" exited: (\S+) \(")


class SupervisionError(Exception):
    """supervisord cannot be started or asked; the message says why."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """What supervisord says of one program. state: RUNNING, STARTING, BACKOFF, STOPPING, STOPPED, EXITED, FATAL."""

    name: str
    state: str
    pid: int
    up_s: float
    description: str


@dataclass(frozen=True, slots=True)
class Supervision:
    """The supervisord of one folder."""

    folder: Path

    @property
    def run(self) -> Path:
        """Where logs, pid and socket are."""
        return self.folder / "run"

    @property
    def socket(self) -> Path:
        """Its control socket."""
        return self.run / "supervisor.sock"

    def log(self, program: str) -> Path:
        """What a program wrote."""
        return self.run / f"{program}.log"

    def running(self) -> bool:
        """Whether it answers."""
        if not self.socket.exists():
            return False
        try:
            self._ask("supervisor.getState")
        except SupervisionError:
            return False
        return True

    def start(self, env: Mapping[str, str]) -> None:
        """Start it in the background and wait until it answers. Its programs start with it."""
        if len(os.fsencode(self.socket)) > LONGEST_SOCKET:
            raise SupervisionError(
                f"{self.socket} is {len(os.fsencode(self.socket))} bytes long, a socket's path may have "
                f"{LONGEST_SOCKET}; build into a folder with a shorter path"
            )
        if importlib.util.find_spec("supervisor") is None:
            raise SupervisionError("the package `supervisor` is missing; write `pip install supervisor`")
        self.run.mkdir(mode=0o700, exist_ok=True)
        said = self.run / "supervisord.out"
        with said.open("wb") as out:
            child = subprocess.Popen(  # noqa: S603 - our own interpreter, our own file
                [sys.executable, "-m", "supervisor.supervisord", "-n", "-c", CONFIGURATION],
                cwd=self.folder,
                env={**env, "PYTHONUTF8": "1"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._answered(child, said)
        except BaseException:
            # Whatever the reason, a keystroke included: what did not start is taken back, with what it started.
            take_back(child)
            raise

    def _answered(self, child: subprocess.Popen[bytes], said: Path) -> None:
        deadline = time.monotonic() + START_S
        while not self.running():
            if child.poll() is not None or time.monotonic() > deadline:
                raise SupervisionError(f"supervisord did not start: {_last_line(said)}")
            time.sleep(_POLL_S)

    def states(self) -> tuple[ProcessState, ...]:
        """All programs, in the order of the file."""
        return tuple(
            ProcessState(
                name=str(found["name"]),
                state=str(found["statename"]),
                pid=int(found["pid"]),
                up_s=float(max(0, found["now"] - found["start"])) if found["pid"] else 0.0,
                description=str(found["spawnerr"] or found["description"]),
            )
            for found in self._ask("supervisor.getAllProcessInfo")
        )

    def update(self) -> tuple[str, ...]:
        """Take the file as it is now; names of programs that were added, changed or removed. Waits for stops.

        Those go as in `stages`: a proxy that goes finishes what it has while its engines are still there.
        """
        stage = {name: place for place, names in enumerate(self.stages()) for name in names}
        ((added, changed, removed),) = self._ask("supervisor.reloadConfig")
        for name in sorted((*removed, *changed), key=lambda name: stage.get(name, len(stage))):
            self._ask("supervisor.stopProcessGroup", name)
            self._ask("supervisor.removeProcessGroup", name)
        for name in (*changed, *added):
            self._ask("supervisor.addProcessGroup", name)
        return (*added, *changed, *removed)

    def start_stopped(self) -> tuple[str, ...]:
        """Start every program that does not run; their names."""
        idle = [one.name for one in self.states() if one.state in ("STOPPED", "EXITED", "FATAL")]
        for name in idle:
            self._ask("supervisor.startProcess", name, False)  # noqa: FBT003 - XML-RPC has no names
        return tuple(idle)

    def signal(self, program: str, name: str) -> None:
        """Send a running program a signal, e.g. HUP; a program that is not running is left alone."""
        with suppress(SupervisionError):
            self._ask("supervisor.signalProcess", program, name)

    def restart(self, program: str) -> None:
        """Stop a running program, which finishes what it has, and start it anew. Waits for the stop."""
        self._ask("supervisor.stopProcess", program)
        self._ask("supervisor.startProcess", program, False)  # noqa: FBT003 - XML-RPC has no names

    def stages(self) -> tuple[tuple[str, ...], ...]:
        """Programs in the order in which they stop, those of one priority together: who asks others goes first."""
        by_priority: dict[int, list[str]] = {}
        for one in self._ask("supervisor.getAllConfigInfo"):
            if one["inuse"]:
                by_priority.setdefault(int(one["process_prio"]), []).append(str(one["name"]))
        return tuple(tuple(by_priority[priority]) for priority in sorted(by_priority, reverse=True))

    def stop(self, program: str) -> None:
        """Send a program its stop signal and start it no more; one that does not run is left alone. Does not wait."""
        with suppress(SupervisionError):
            self._ask("supervisor.stopProcess", program, False)  # noqa: FBT003 - XML-RPC has no names

    def shut_down(self) -> None:
        """Ask it to stop what it still has, and itself. It answers nothing else from now on."""
        with suppress(SupervisionError):
            self._ask("supervisor.shutdown")

    def pid(self) -> int | None:
        """Its own id; None where its file does not have one."""
        try:
            return int((self.run / "supervisord.pid").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def ends(self) -> Mapping[str, int]:
        """How often each program ended unasked since this supervisord started, from its log."""
        found: dict[str, int] = {}
        try:
            with (self.run / "supervisord.log").open(encoding="utf-8", errors="replace") as log:
                for line in log:
                    if " supervisord started with pid " in line:
                        found = {}
                    elif ended := _ENDED.search(line):
                        found[ended[1]] = found.get(ended[1], 0) + 1
        except OSError:
            return {}
        return found

    def _ask(self, method: str, *arguments: str | bool) -> Any:
        from supervisor.xmlrpc import SupervisorTransport  # noqa: PLC0415 - an optional tool of one target

        transport = SupervisorTransport(None, None, f"unix://{self.socket}")
        server = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)
        try:
            return getattr(server, method)(*arguments)
        except xmlrpc.client.Fault as fault:
            raise SupervisionError(f"supervisord refuses {method}: {fault.faultString}") from None
        except (OSError, xmlrpc.client.Error) as problem:
            raise SupervisionError(f"supervisord does not answer at {self.socket}: {problem}") from None
        finally:
            transport.close()


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
