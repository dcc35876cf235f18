"""Every fault at every moment of a request: `python -m tests.bench.fault_matrix [--rows WORD] [--json]`.

Two prefill and two decode doubles and the real proxy, each a process of its own. In each cell one streamed request is
sent, one thing goes wrong, and it is written down what the client saw, how often the proxy tried again, and what is
left behind: pinned or leaked blocks, running sequences, open sockets. A cell fails when a request is lost that could
have been tried again, when it hangs, when its text is wrong, or when something leaks.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from disaggc.routing.choice import affine
from disaggc.simengine.timing import DecodeTimes, KvTimes, PrefillTimes, Timing
from disaggc.simengine.tokens import WORDS, Continuation, digests, tokenize

COLUMNS = ("before leg 1", "during leg 1", "between legs", "before first byte", "mid-stream")
TOKENS = 12
LEASE_S = 3
DEADLINE_S = 10.0
"""Of one request: above every deadline of the routing file together that one retry can meet."""
SETTLE_S = LEASE_S + 4.0
TIMES = Timing(
    decode=DecodeTimes(batches=(1,), fixed_s=(0.06,), token_s=0.0),
    prefill=PrefillTimes(fixed_s=0.3, token_s=0.0, square_s=0.0),
    kv=KvTimes(setup_s=0.25, bytes_per_s=1e12, bytes_per_token=1.0),
)
TIMEOUTS = {
    "connect_s": 0.5, "prefill_s": 1.5, "first_byte_s": 1.5, "gap_s": 1.0, "total_s": 9.0, "handoff_s": 1.0, "queue_s": 1.0,
    "client_read_s": 2.0, "client_write_s": 2.0, "idle_client_s": 2.0, "idle_upstream_s": 1.0, "drain_s": 3.0,
}  # fmt: skip
PROGRAM = [sys.executable, "-c", "from disaggc.cli.entry import run; run()"]


_PORTS = itertools.count(12000 + os.getpid() % 100 * 150)
"""Below the range that outgoing connections take their ports from: a struck process must get its own port again."""


def free_port() -> int:
    """A port nobody listens on, never the same twice."""
    for port in _PORTS:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise RuntimeError("no port is free")


def call(port: int, path: str, body: Any = None, method: str | None = None, timeout: float = 2.0) -> Any:
    """A small question to an admin port; None when nobody answers."""
    data = json.dumps(body).encode() if body is not None else None
    ask = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, method=method)
    try:
        with urllib.request.urlopen(ask, timeout=timeout) as answer:  # noqa: S310 - a test
            text = answer.read().decode()
    except OSError:
        return None
    return json.loads(text) if text.startswith(("{", "[")) else text


class Engine:
    """One double."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._folder = name, folder
        self.port, self.admin, self._side = free_port(), free_port(), free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        connector = {
            "kv_connector": "NixlConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"kv_lease_duration": LEASE_S},
        }
        env = {
            **os.environ,
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(self._side),
        }
        command = [
            *PROGRAM, "sim-engine", "serve", "tiny", "--served-model-name", "m", "--host", "127.0.0.1", "--port", str(self.port),
            "--max-model-len", "4096", "--admin-port", str(self.admin), "--timing", str(self._folder / "timing.json"),
            "--kv-transfer-config", json.dumps(connector),
        ]  # fmt: skip
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log)

    @property
    def state(self) -> dict[str, Any]:
        return call(self.admin, "/state") or {}

    def fault(self, **what: Any) -> None:
        call(self.admin, "/faults", what)

    def kill(self, how: int) -> None:
        assert self.process is not None
        self.process.send_signal(how)

    def well(self) -> None:
        """As new: faults off, cache empty, process running."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.process.poll() is not None:
                self.start()
            if (
                call(self.admin, "/faults", {}, "DELETE") is not None
                and call(self.port, "/health") is not None
            ):
                call(self.admin, "/forget", {})
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} does not come back")

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)


@dataclass
class Seen:
    """What the client saw."""

    status: int = 0
    text: str = ""
    events: int = 0
    error: bool = False
    done: bool = False
    seconds: float = 0.0
    ended: bool = False

    def outcome(self, expected: str) -> str:
        if not self.ended:
            return "HANGS"
        if self.status == 0:
            return "connection lost"
        if self.status != 200:
            return str(self.status)
        if not expected.startswith(self.text):
            return "WRONG TEXT"
        if self.error:
            return "error event"
        return "ok" if self.done and self.text == expected else "CUT"


@dataclass
class Stack:
    """The processes, and what a cell needs of them."""

    folder: Path
    engines: dict[str, Engine] = field(default_factory=dict)
    proxy: subprocess.Popen[bytes] | None = None
    port: int = 0
    admin: int = 0

    def start(self) -> None:
        (self.folder / "timing.json").write_text(TIMES.model_dump_json())
        self.engines = {name: Engine(name, self.folder) for name in ("p0", "p1", "d0", "d1")}
        for engine in self.engines.values():
            engine.start()
        self.port, self.admin = free_port(), free_port()
        pools = [
            {
                "address": f"chat/{role}", "role": role,
                "replicas": [
                    {"address": f"chat/{role}/{i}", "host": "127.0.0.1", "port": self.engines[f"{role[0]}{i}"].port, "cohort": "c"}
                    for i in range(2)
                ],
            }
            for role in ("prefill", "decode")
        ]  # fmt: skip
        table = {
            "service": "chat", "generation": 1, "models": ["m"], "dialect": "nixl", "max_model_len": 4096, "pools": pools,
            "policy": "prefix-affinity", "timeouts": TIMEOUTS, "lease_s": LEASE_S, "retries": 2,
            "listen": {"host": "127.0.0.1", "port": self.port, "admin_port": self.admin},
            "health": {"interval_s": 0.25, "timeout_s": 0.5, "eject_after": 2, "readmit_after": 1, "open_s": 0.5},
            "log": {"file": str(self.folder / "access.log")},
        }  # fmt: skip
        (self.folder / "routing.json").write_text(json.dumps(table))
        self.start_proxy()
        self.well()

    def start_proxy(self) -> None:
        with (self.folder / "proxy.log").open("ab") as log:
            self.proxy = subprocess.Popen(
                [*PROGRAM, "proxy", "--config", str(self.folder / "routing.json")], stdout=log, stderr=log
            )

    def well(self) -> None:
        """Everything answers again, over the preferred pair and over the other."""
        for engine in self.engines.values():
            engine.well()
        assert self.proxy is not None
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.proxy.poll() is not None:
                self.start_proxy()
            good = [self.send(f"warm {time.monotonic()} {first}", first=first, tokens=1) for first in (0, 1)]
            if all(seen.done for seen in good):
                return
            time.sleep(0.1)
        raise RuntimeError("the stack does not come back")

    def end(self) -> None:
        if self.proxy is not None:
            self.proxy.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.proxy.wait(8)
            self.proxy.kill()
        for engine in self.engines.values():
            engine.end()

    @property
    def workers(self) -> list[int]:
        assert self.proxy is not None
        with contextlib.suppress(OSError):
            return list(
                map(int, Path(f"/proc/{self.proxy.pid}/task/{self.proxy.pid}/children").read_text().split())
            )
        return []

    def metric(self, name: str) -> float:
        text = call(self.admin, "/metrics") or ""
        return sum(
            float(v)
            for v in re.findall(rf"^disaggc_proxy_{name}(?:\{{[^}}]*\}})? (\S+)$", str(text), re.MULTILINE)
        )

    # --- one request ---

    def send(self, prompt: str, seen: Seen | None = None, *, first: int = 0, tokens: int = TOKENS) -> Seen:
        """A streamed request that prefers the pair p<first>, d<first>."""
        seen = seen or Seen()
        body = json.dumps(
            {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
        ).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\nx-session-id: {session(first)}\r\nConnection: close\r\n\r\n"
        begun = time.monotonic()
        data = b""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection,
        ):
            connection.sendall(head.encode() + body)
            connection.settimeout(DEADLINE_S)
            try:
                while part := connection.recv(65536):
                    data += part
                    self._read(data, seen)
            except TimeoutError:
                return seen
            except OSError:
                pass
        seen.ended, seen.seconds = True, time.monotonic() - begun
        return seen

    @staticmethod
    def _read(data: bytes, seen: Seen) -> None:
        head, _, rest = data.partition(b"\r\n\r\n")
        seen.status = int(head[9:12] or 0)
        text, events = "", 0
        for line in rest.split(b"\n"):
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                seen.done = True
                continue
            with contextlib.suppress(ValueError):
                said = json.loads(line[6:])
                events += 1
                if said.get("error"):
                    seen.error = True
                for choice in said.get("choices", ()):
                    text += choice.get("text", "")
        seen.text, seen.events = text, events


def session(first: int) -> str:
    """A session id whose owners are the first (or second) replicas of both roles."""
    for number in range(1000):
        name = f"s{number}"
        owners = [
            affine(
                [SimpleNamespace(address=f"chat/{role}/{i}", weight=1.0, work=0.0) for i in range(2)],
                name.encode(),
            )
            for role in ("prefill", "decode")
        ]
        if all(owner.address.endswith(f"/{first}") for owner in owners):
            return name
    raise RuntimeError("no session id prefers this pair")


def expected_text(prompt: str) -> str:
    """What the model says, whoever computes it."""
    words = Continuation(digests(tokenize(prompt), 16)[-1])
    return "".join(WORDS[words.next()].decode() for _ in range(TOKENS))


# --- what goes wrong ---

Moment = Callable[[Stack, Seen], bool]
MOMENTS: dict[str, Moment] = {
    "during leg 1": lambda s, _: bool(s.engines["p0"].state.get("running")),
    "between legs": lambda s, _: bool(s.engines["p0"].state.get("leases")),
    "before first byte": lambda s, seen: bool(s.engines["d0"].state.get("fetching")) and not seen.events,
    "mid-stream": lambda _, seen: seen.events >= 3,
}


@dataclass(frozen=True)
class Row:
    """One kind of fault. allowed: outcomes besides `ok` by column, with why."""

    name: str
    arm: Callable[[Stack, str], Callable[[Stack], None] | None]
    """Prepares it; what it gives is done when the moment comes."""
    allowed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    skip: tuple[str, ...] = ()


ASKED = {
    "before leg 1": ("p0", {"leg": "prefill", "when": "arrival"}),
    "during leg 1": ("p0", {"leg": "prefill", "when": "working", "delay_s": 0.1}),
    "between legs": ("d0", {"leg": "decode", "when": "arrival"}),
    "before first byte": ("d0", {"leg": "decode", "when": "first"}),
    "mid-stream": ("d0", {"leg": "decode", "when": "mid", "after_tokens": 4}),
}
MID = {"mid-stream": ("error event",)}


def asked(name: str, kind: str, *, strikes: bool = False, **more: Any) -> Row:
    """A fault at the engine that has the request then: of the request, or of the process (`strikes`)."""

    def arm(stack: Stack, column: str) -> None:
        engine, when = ASKED[column]
        if strikes and column == "before first byte":
            when = {"leg": "decode", "when": "working", "delay_s": 0.1}  # the word is not made yet
        stack.engines[engine].fault(kind=kind, **{**when, **more})

    return Row(name, arm, allowed=MID)


def struck(name: str, engine: str, kind: str, how: int) -> Row:
    """A process that is struck, whatever it does at that moment."""
    mine = {
        "p0": ("between legs", {"leg": "prefill", "when": "after"}),
        "d0": ("between legs", {"leg": "decode", "when": "arrival"}),
    }

    def arm(stack: Stack, column: str) -> Callable[[Stack], None] | None:
        exact, when = mine[engine]
        if column == exact:
            stack.engines[engine].fault(kind=kind, **when)
            return None
        if column == "before leg 1":
            stack.engines[engine].kill(how)
            return None
        return lambda s: s.engines[engine].kill(how)

    return Row(name, arm, allowed=MID if engine == "d0" else {})


def prefill_only(name: str, kind: str, columns: tuple[str, ...], **more: Any) -> Row:
    """A fault of the prefill side that has a meaning only at some moments."""

    def arm(stack: Stack, column: str) -> None:
        when = {"when": "after" if column == "between legs" else "working", "leg": "prefill"}
        stack.engines["p0"].fault(kind=kind, **{**when, **more})

    return Row(name, arm, skip=tuple(c for c in COLUMNS if c not in columns))


def of_proxy(name: str, act: Callable[[Stack], None], outcomes: tuple[str, ...]) -> Row:
    """A process of the proxy is struck: the client's connection lives in it."""

    def arm(_: Stack, column: str) -> Callable[[Stack], None] | None:
        return act if column != "before leg 1" else None

    return Row(name, arm, allowed=dict.fromkeys(COLUMNS, outcomes), skip=("before leg 1",))


def kill_workers(stack: Stack) -> None:
    for pid in stack.workers:
        os.kill(pid, signal.SIGKILL)


def proxy_signal(how: int) -> Callable[[Stack], None]:
    def act(stack: Stack) -> None:
        assert stack.proxy is not None
        stack.proxy.send_signal(how)

    return act


ROWS = (
    asked("engine answers 500", "status"),
    asked("engine answers 503", "status", status=503),
    asked("200 with an error", "error-200"),
    asked("200 with abort", "abort-200"),
    asked("connection reset", "drop"),
    asked("request hangs", "hang"),
    asked("half-open connection", "half-open"),
    asked("engine frozen", "freeze", strikes=True),
    asked("engine 60 x slower", "slow", factor=60, strikes=True),
    asked("connections refused", "refuse", strikes=True),
    asked("leases expire", "expire-leases", strikes=True),
    prefill_only("prefill without parameters", "null-params", ("during leg 1",)),
    prefill_only("leases expire after leg 1", "expire-leases", ("between legs",)),
    struck("kill -9 prefill", "p0", "crash", signal.SIGKILL),
    struck("kill -9 decode", "d0", "crash", signal.SIGKILL),
    struck("SIGTERM prefill", "p0", "terminate", signal.SIGTERM),
    struck("SIGTERM decode", "d0", "terminate", signal.SIGTERM),
    struck("network cut at prefill", "p0", "stop", signal.SIGSTOP),
    struck("network cut at decode", "d0", "stop", signal.SIGSTOP),
    of_proxy("kill -9 proxy worker", kill_workers, ("connection lost", "CUT")),
    of_proxy("SIGTERM proxy", proxy_signal(signal.SIGTERM), ()),
    of_proxy("kill -9 proxy control", proxy_signal(signal.SIGKILL), ()),
)
"""A wrong block id in the parameters is not among them: the engine answers it with wrong text and a 200, which no
proxy can see; canary pairs and `smoke` look for that."""


@dataclass
class Cell:
    """What came of one fault at one moment."""

    row: str
    column: str
    outcome: str
    seconds: float
    retries: int
    pinned: int
    leaked: int
    running: int
    sockets: int
    faults: list[str] = field(default_factory=list)

    def text(self) -> str:
        left = [
            f"{n} {what}"
            for n, what in (
                (self.pinned, "pinned"),
                (self.leaked, "leaked"),
                (self.running, "running"),
                (self.sockets, "sockets"),
            )
            if n
        ]
        return " ".join([self.outcome, *([f"r{self.retries}"] if self.retries else []), *left])


def cell(stack: Stack, row: Row, column: str) -> Cell:
    """One request, one fault, and what is left after the leases are over."""
    prompt = f"{row.name} {column} {time.monotonic_ns()} " * 8
    expected, seen = expected_text(prompt), Seen()
    before = stack.metric("retries_total")
    act = row.arm(stack, column)
    thread = threading.Thread(target=stack.send, args=(prompt, seen))
    thread.start()
    if act is not None:
        end = time.monotonic() + DEADLINE_S
        while thread.is_alive() and time.monotonic() < end and not MOMENTS[column](stack, seen):
            time.sleep(0.002)
        act(stack)
    thread.join(DEADLINE_S + 3)
    retries = int(stack.metric("retries_total") - before)
    for engine in stack.engines.values():
        engine.well()
    rest = settle(stack)
    found = Cell(row.name, column, seen.outcome(expected), round(seen.seconds, 2), max(retries, 0), **rest)
    found.faults = judge(found, row)
    return found


def settle(stack: Stack) -> dict[str, int]:
    """What is left on the doubles once everything had time to end."""
    end = time.monotonic() + SETTLE_S
    while True:
        states = [engine.state for engine in stack.engines.values()]
        rest = {
            "pinned": sum(s.get("pinned_blocks", 0) for s in states),
            "leaked": sum(s.get("leaked_blocks", 0) for s in states),
            "running": sum(
                s.get("running", 0) + s.get("waiting", 0) + s.get("fetching", 0) + s.get("open", 0)
                for s in states
            ),
            # the proxy's own probes come and go, so this is nought now and then when nothing else is open
            "sockets": sum(s.get("connections", 0) for s in states),
        }
        if not any(rest.values()) or time.monotonic() > end:
            return rest
        time.sleep(0.1)


def judge(found: Cell, row: Row) -> list[str]:
    """Why a cell is not good enough."""
    faults = []
    if found.outcome not in ("ok", *row.allowed.get(found.column, ())):
        faults.append(f"client saw {found.outcome}")
    faults += [
        f"{n} {what} left"
        for n, what in (
            (found.pinned, "pinned blocks"),
            (found.leaked, "leaked blocks"),
            (found.running, "sequences"),
            (found.sockets, "sockets"),
        )
        if n
    ]
    return faults


@contextlib.contextmanager
def stack_up() -> Iterator[Stack]:
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(Path(folder))
        try:
            stack.start()
            yield stack
        finally:
            stack.end()


def line(stack: Stack, row: Row) -> list[Cell]:
    """All cells of a row."""
    found = []
    for column in COLUMNS:
        if column not in row.skip:
            found.append(cell(stack, row, column))
            stack.well()
    return found


def side_by_side(rows: list[Row], stacks: int, *, quiet: bool) -> list[list[Cell]]:
    """The rows over several stacks at once: a cell mostly waits. Printed in order, as they come."""
    todo = list(enumerate(rows))
    done: dict[int, list[Cell]] = {}
    lock = threading.Lock()

    def work() -> None:
        with stack_up() as stack:
            while True:
                with lock:
                    if not todo:
                        return
                    at, row = todo.pop(0)
                found = line(stack, row)
                with lock:
                    done[at] = found
                    if not quiet:
                        print(rendered(row, found), flush=True)

    with ThreadPoolExecutor(stacks) as pool:
        for task in [pool.submit(work) for _ in range(min(stacks, len(rows)))]:
            task.result()
    return [done[at] for at in sorted(done)]


def rendered(row: Row, found: list[Cell]) -> str:
    """One line of the table."""
    texts = {c.column: c.text() + (" **FAIL**" if c.faults else "") for c in found}
    return f"| {row.name} | " + " | ".join(texts.get(column, "-") for column in COLUMNS) + " |"


def main() -> int:
    """Run and print; 1 when a cell fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="", help="only rows with this word")
    parser.add_argument("--stacks", type=int, default=3, help="stacks that run rows side by side")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [row for row in ROWS if options.rows in row.name]
    if not options.json:
        print("| fault | " + " | ".join(COLUMNS) + " |\n|---" + "|---" * len(COLUMNS) + "|")
    cells = [c for found in side_by_side(rows, options.stacks, quiet=options.json) for c in found]
    bad = [c for c in cells if c.faults]
    if options.json:
        print(json.dumps({"schema": "disaggc.bench-faults/v1", "cells": [vars(c) for c in cells]}, indent=2))
    else:
        print(
            f"\n{len(cells)} cells, {len(bad)} fail; slowest {max(c.seconds for c in cells)} s, deadline {DEADLINE_S} s"
        )
        for c in bad:
            print(f"  {c.row}, {c.column}: {'; '.join(c.faults)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
