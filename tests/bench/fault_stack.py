"""The processes of the fault matrix: two prefill and two decode doubles of any dialect, the real proxy, one client.

Engines may stand in network namespaces of their own, so that a cable can be pulled (fault_network).
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from disaggc.routing.choice import affine
from disaggc.routing.table import Dialect
from disaggc.simengine.timing import DecodeTimes, KvTimes, PrefillTimes, Timing
from disaggc.simengine.tokens import WORDS, Continuation, digests, tokenize
from tests.bench.fault_network import Network
from tests.ports import HERE, free_port, marked

TOKENS = 12
LEASE_S = 3
PREFILL_S = 0.3
DEADLINE_S = 10.0
"""Of one request: above every deadline of the routing file together that one retry can meet."""
TIMES = Timing(
    decode=DecodeTimes(batches=(1,), fixed_s=(0.06,), token_s=0.0),
    prefill=PrefillTimes(fixed_s=PREFILL_S, token_s=0.0, square_s=0.0),
    kv=KvTimes(setup_s=0.25, bytes_per_s=1e12, bytes_per_token=1.0),
)
TIMEOUTS = {
    "connect_s": 0.5, "prefill_s": 1.5, "first_byte_s": 1.5, "gap_s": 1.0, "total_s": 9.0, "handoff_s": 1.0, "queue_s": 1.0,
    "client_read_s": 2.0, "client_write_s": 2.0, "idle_client_s": 2.0, "idle_upstream_s": 1.0, "drain_s": 3.0,
}  # fmt: skip
NAMES = ("p0", "p1", "d0", "d1")
LISTENING = "0A"
PROGRAM = [sys.executable, "-c", "from disaggc.cli.entry import run; run()"]


def call(
    port: int,
    path: str,
    body: Any = None,
    method: str | None = None,
    *,
    timeout: float = 2.0,
    host: str = HERE,
) -> Any:
    """A small question to an admin port; None when nobody answers."""
    data = json.dumps(body).encode() if body is not None else None
    ask = urllib.request.Request(f"http://{host}:{port}{path}", data, method=method)
    try:
        with urllib.request.urlopen(ask, timeout=timeout) as answer:  # noqa: S310 - a test
            text = answer.read().decode()
    except OSError:
        return None
    return json.loads(text) if text.startswith(("{", "[")) else text


CONNECTORS = {
    Dialect.NIXL: "NixlConnector", Dialect.NIXL_PUSH: "NixlPushConnector", Dialect.MOONCAKE: "MooncakeConnector",
    Dialect.MORIIO_READ: "MoRIIOConnector", Dialect.MORIIO_WRITE: "MoRIIOConnector",
}  # fmt: skip


class Engine:
    """One double."""

    def __init__(self, name: str, folder: Path, *, dialect: Dialect, network: Network | None) -> None:
        self.name, self._folder, self._dialect, self._network = name, folder, dialect, network
        self.host = network.hosts[name] if network is not None else HERE
        self.port, self.admin, self.side, self.bootstrap = (free_port() for _ in range(4))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def kv(self) -> dict[str, Any]:
        """What the routing file says of its KV side."""
        return {
            "host": self.host, "side_channel_port": self.side, "bootstrap_port": self.bootstrap,
            "notify_port": self.bootstrap, "engine_id": self.name,
        }  # fmt: skip

    def start(self) -> None:
        connector = {
            "kv_connector": CONNECTORS[self._dialect],
            "kv_role": "kv_both",
            "engine_id": self.name,
            "kv_connector_extra_config": {
                "kv_lease_duration": LEASE_S, "defer_timeout": LEASE_S, "handshake_port": self.side, "notify_port": self.bootstrap,
                "read_mode": self._dialect is Dialect.MORIIO_READ,
            },
        }  # fmt: skip
        env = {
            **marked(),
            "VLLM_NIXL_SIDE_CHANNEL_HOST": self.host,
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(self.side),
            "VLLM_MOONCAKE_BOOTSTRAP_PORT": str(self.bootstrap),
            "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT": str(LEASE_S),
        }
        command = [
            *(self._network.inside(self.name) if self._network else ()),
            *PROGRAM, "sim-engine", "serve", "tiny", "--served-model-name", "m", "--host", self.host, "--port", str(self.port),
            "--max-model-len", "4096", "--admin-port", str(self.admin), "--admin-host", self.host,
            "--timing", str(self._folder / "timing.json"), "--kv-transfer-config", json.dumps(connector),
        ]  # fmt: skip
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log)

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """A question to its admin port."""
        return call(self.admin, path, body, method, host=self.host)

    @property
    def state(self) -> dict[str, Any]:
        return self.ask("/state") or {}

    def fault(self, **what: Any) -> None:
        self.ask("/faults", what)

    def now(self, **what: Any) -> None:
        """A fault of the process, at once."""
        self.ask("/now", what)

    def cut(self) -> None:
        """Pull its cable."""
        assert self._network is not None
        self._network.cut(self.name)

    def kill(self, how: int) -> None:
        assert self.process is not None
        self.process.send_signal(how)

    def well(self) -> None:
        """As new: cable in, faults off, cache empty, process running."""
        assert self.process is not None
        if self._network is not None:
            self._network.mend(self.name)
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.process.poll() is not None:
                self.start()
            if (
                self.ask("/faults", {}, "DELETE") is not None
                and call(self.port, "/health", host=self.host) is not None
                and self.state.get("pid") == self.process.pid
            ):
                self.ask("/forget", {})
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} does not come back: {self.last_words()}")

    def last_words(self) -> str:
        """Whether it lives, and the end of its log."""
        code = None if self.process is None else self.process.poll()
        log = self._folder / f"{self.name}.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        lives = "lives" if code is None else f"ended with {code}"
        return f"{self.name} {lives}, said {lines[-1] if lines else 'nothing'}"

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
    dialect: Dialect = Dialect.NIXL
    network: Network | None = None
    engines: dict[str, Engine] = field(default_factory=dict)
    proxy: subprocess.Popen[bytes] | None = None
    port: int = 0
    admin: int = 0

    def start(self) -> None:
        (self.folder / "timing.json").write_text(TIMES.model_dump_json())
        if self.network is not None:
            self.network.build(NAMES)
        self.engines = {
            name: Engine(name, self.folder, dialect=self.dialect, network=self.network) for name in NAMES
        }
        for engine in self.engines.values():
            engine.start()
        self.port, self.admin = free_port(), free_port()
        pools = [
            {"address": f"chat/{role}", "role": role, "replicas": [self._entry(role, i) for i in range(2)]}
            for role in ("prefill", "decode")
        ]
        table = {
            "service": "chat", "generation": 1, "models": ["m"], "dialect": self.dialect.value, "max_model_len": 4096, "pools": pools,
            "policy": "prefix-affinity", "timeouts": TIMEOUTS, "lease_s": LEASE_S, "retries": 2,
            "listen": {"host": "127.0.0.1", "port": self.port, "admin_port": self.admin},
            "health": {"interval_s": 0.25, "timeout_s": 2.0, "eject_after": 3, "readmit_after": 1, "open_s": 0.5},
            "log": {"file": str(self._log)},
        }  # fmt: skip
        (self.folder / "routing.json").write_text(json.dumps(table))
        self.start_proxy()
        self.well()

    def _entry(self, role: str, index: int) -> dict[str, Any]:
        engine = self.engines[f"{role[0]}{index}"]
        address = f"chat/{role}/{index}"
        return {"address": address, "host": engine.host, "port": engine.port, "cohort": "c", "kv": engine.kv}

    def start_proxy(self) -> None:
        with (self.folder / "proxy.log").open("ab") as log:
            self.proxy = subprocess.Popen(
                [*PROGRAM, "proxy", "--config", str(self.folder / "routing.json")],
                env=marked(), stdout=log, stderr=log,
            )  # fmt: skip

    def well(self) -> None:
        """Everything answers again, over the preferred pair and over the other."""
        for engine in self.engines.values():
            engine.well()
        assert self.proxy is not None
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.proxy.poll() is not None:
                self.start_proxy()
            unwell = [why for first in (0, 1) if (why := self._unwell(first))]
            if not unwell:
                return
            time.sleep(0.1)
        raise RuntimeError(f"the stack does not come back: {'; '.join(unwell)}; {self.last_words()}")

    def _unwell(self, first: int) -> str | None:
        """None when the pair that is preferred answers at the first try; otherwise what came instead."""
        request = f"warm-{first}-{time.monotonic_ns()}"
        # as long as those of the cells: a short prompt would not be prefilled elsewhere
        seen = self.send(f"{request} well " * 8, first=first, tokens=1, request=request)
        said = self.logged(request) or {}
        pair = (f"chat/prefill/{first}", f"chat/decode/{first}", 0)
        found = (said.get("prefill"), said.get("decode"), said.get("retries"))
        return None if seen.done and found == pair else f"pair {first}: status {seen.status}, {found}"

    def last_words(self) -> str:
        """Of every engine."""
        return "; ".join(engine.last_words() for engine in self.engines.values())

    def end(self) -> None:
        if self.proxy is not None:
            self.proxy.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.proxy.wait(8)
            self.proxy.kill()
        for engine in self.engines.values():
            engine.end()
        if self.network is not None:
            self.network.remove()

    def part(self, one: str, other: str) -> None:
        """Cut the link between two engines; both still have theirs to the proxy."""
        assert self.network is not None
        self.network.part(one, other)

    @property
    def _log(self) -> Path:
        return self.folder / "access.log"

    def logged(self, request: str) -> dict[str, Any] | None:
        """What the access log says of a request; None when it says nothing."""
        end = time.monotonic() + 1.0  # lines are written in batches, 0.2 s late
        while time.monotonic() < end:
            said = self._log.read_bytes() if self._log.exists() else b""
            for line in reversed(said.rpartition(b"\n")[0].splitlines()):  # the last may be half written
                if request.encode() in line:
                    found: dict[str, Any] = json.loads(line)
                    return found
            time.sleep(0.05)
        return None

    @property
    def sockets(self) -> int:
        """TCP sockets that the proxy's workers hold open: clients' and engines', no listeners."""
        return sum(len(open_sockets(pid)) for pid in self.workers)

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

    def send(
        self,
        prompt: str,
        seen: Seen | None = None,
        *,
        first: int = 0,
        tokens: int = TOKENS,
        request: str = "r",
    ) -> Seen:
        """A streamed request that prefers the pair p<first>, d<first>."""
        seen = seen or Seen()
        body = json.dumps(
            {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
        ).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\nx-session-id: {session(first)}\r\nx-request-id: {request}\r\nConnection: close\r\n\r\n"
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


def open_sockets(pid: int) -> list[str]:
    """Inodes of a process's TCP sockets that are not listening."""
    inodes = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                words = line.split()
                inodes[words[9]] = words[3]
    held = []
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                held.append(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    return [inode for inode in held if inodes.get(inode, LISTENING) != LISTENING]


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
