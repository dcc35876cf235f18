"""What the proxy costs beside the engines alone and beside vllm-router: `python -m tests.bench.proxy [--scale S] [--json]`.

Engines and client are the C program beside this file, in processes of their own on one core; each proxy runs on the
other, and only its own CPU time is counted (from /proc). Rounds are interleaved, medians are shown.

Ours is the package as its wheel installs it, compiled; --interpreted measures this checkout as it is instead.

Stages are said on stderr; one that is not over in its time ends the bench with a message. --scale shortens all of
them: requests, streams, connections at once. Below 1 the figures per request and stream are coarser.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests import compiled
from tests.bench.stages import stage

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "disaggc-bench"
TICK = os.sysconf("SC_CLK_TCK")
CORES = sorted(os.sched_getaffinity(0))
PROXY_CORE, LOAD_CORE = {CORES[0]}, {CORES[-1]}
QUICK, PACED, SLOW = (19200, 19201), (19202, 19203), (19204, 19205)
ENGINES = ((QUICK, 0), (PACED, 20_000), (SLOW, 1_000_000))
"""(prefill and decode port, us between tokens). Thousands of open streams are held at the slow ones, at a token a second:
at the paced ones 2,000 would be 100,000 tokens a second, more than any proxy passes on with one core."""
OURS, ROUTER = 19210, 19220
STREAMS, BURST = 2000, 1000
ROUND_S, HOLD_S, UP_S = 300, 120, 60
"""After this long a round of one contender, the opening of all streams, or a start is given up."""


def tool() -> Path:
    """The C program, built once."""
    source, built = HERE / "load.c", CACHE / "load"
    CACHE.mkdir(parents=True, exist_ok=True)
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            sys.exit("SKIPPED: no C compiler, so there is no load to measure with")
        subprocess.run([compiler, "-O2", "-Wall", "-o", str(built), str(source)], check=True)
    return built


def router_command() -> list[str] | None:
    """vllm-router in a venv of its own, installed when missing; None where it cannot be had."""
    venv = CACHE / "vllm-router"
    program = venv / "bin" / "vllm-router"
    if not program.exists():
        made = subprocess.run([sys.executable, "-m", "venv", str(venv)], check=False).returncode == 0
        if (
            not made
            or subprocess.run(
                [str(venv / "bin" / "pip"), "install", "-q", "vllm-router"], check=False
            ).returncode
        ):
            sys.stderr.write("SKIPPED: vllm-router cannot be installed here, the table has no peer\n")
            return None
    return [str(program)]


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and its children so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK + sum(cpu_s(child) for child in children(pid))


def rss_bytes(pid: int) -> int:
    """Resident memory of a process and its children."""
    text = Path(f"/proc/{pid}/status").read_text()
    own = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS"))
    return own * 1024 + sum(rss_bytes(child) for child in children(pid))


def descriptors(pid: int) -> int:
    """Open file descriptors of a process and its children."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir())) + sum(descriptors(child) for child in children(pid))


def children(pid: int) -> list[int]:
    """Direct children, over all threads."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def listen_drops() -> int:
    """Connections the kernel dropped because a listen queue was full."""
    names, values = (line.split() for line in Path("/proc/net/netstat").read_text().splitlines()[:2])
    counts = dict(zip(names, values, strict=True))
    return int(counts["ListenDrops"]) + int(counts["ListenOverflows"])


@contextlib.contextmanager
def running(
    command: list[str], *, core: set[int], log: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process pinned to cores, ended afterwards."""
    sink = log.open("wb") if log else subprocess.DEVNULL
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sink,
        stderr=sink,
        preexec_fn=lambda: os.sched_setaffinity(0, core),  # noqa: PLW1509 - no threads here
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()


def load(*arguments: object) -> dict[str, float]:
    """One run of the client."""
    command = [str(tool()), *map(str, arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, LOAD_CORE),
    )
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return said


def routing(port: int, admin: int, engines: tuple[int, int], folder: Path) -> Path:
    """A routing file with everything on: key, log, health, admission, metrics."""
    pools = [
        {
            "address": f"bench/{role}", "role": role,
            "replicas": [{
                "address": f"bench/{role}/0", "host": "127.0.0.1", "port": engine, "cohort": "c",
                "max_seqs": 20000, "kv_tokens": 1 << 40,
            }],
        }
        for role, engine in zip(("prefill", "decode"), engines, strict=True)
    ]  # fmt: skip
    table = {
        "service": "bench", "generation": 1, "models": ["m"], "dialect": "nixl", "max_model_len": 1 << 20, "pools": pools,
        "listen": {"host": "127.0.0.1", "port": port, "admin_port": admin}, "api_key": {"env": "BENCH_KEY"},
        "log": {"file": str(folder / "access.log")}, "timeouts": {"gap_s": 3600, "drain_s": 1},
        "limits": {"connections": 20000},
    }  # fmt: skip
    path = folder / f"routing-{port}.json"
    path.write_text(json.dumps(table))
    return path


def ours_command(
    port: int, admin: int, engines: tuple[int, int], folder: Path, workers: int = 1
) -> list[str]:
    """Our proxy."""
    os.environ["BENCH_KEY"] = "bench"
    program = [sys.executable, "-c", "from disaggc.cli.entry import run; run()"]
    return [
        *program,
        "proxy",
        "--config",
        str(routing(port, admin, engines, folder)),
        "--workers",
        str(workers),
    ]


def router_of(command: list[str], port: int, engines: tuple[int, int]) -> list[str]:
    """The peer with its retries and health checks as they come, and room for 20,000 requests."""
    prefill, decode = (f"http://127.0.0.1:{engine}" for engine in engines)
    return [
        *command, "--vllm-pd-disaggregation", "--prefill", prefill, "--decode", decode, "--host", "127.0.0.1",
        "--port", str(port), "--policy", "round_robin", "--kv-connector", "nixl", "--prometheus-port", str(port + 1),
        "--log-level", "warning", "--max-concurrent-requests", "20000", "--queue-size", "20000",
        "--max-payload-size", str(1 << 28),
    ]  # fmt: skip


def wait_up(port: int, seconds: float = UP_S) -> None:
    """Until a request is answered."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError, IndexError, subprocess.SubprocessError):
            if load("client", port, 1, 1, 600, 1, 1, 0)["failed"] == 0:
                return
        time.sleep(0.2)
    sys.exit(f"nothing answers on port {port}")


def scaled(count: int, scale: float) -> int:
    """That share of so many, at least one."""
    return max(1, int(count * scale))


class Contender:
    """One way to reach the engines."""

    def __init__(self, name: str, ports: tuple[int, int, int], pids: list[int] | None) -> None:
        self.name = name
        self.quick, self.paced, self.slow = self.ports = ports
        self.pids = pids
        self.figures: dict[str, list[float]] = {}

    def note(self, name: str, value: float) -> None:
        self.figures.setdefault(name, []).append(value)

    def cost(self, which: int, *arguments: object) -> tuple[dict[str, float], float]:
        """A run and the CPU seconds it took the proxy."""
        if self.pids is None:
            return load(*arguments), 0.0
        before = cpu_s(self.pids[which])
        said = load(*arguments)
        return said, cpu_s(self.pids[which]) - before

    def round(self, scale: float) -> None:
        """One round of everything but memory."""
        count = scaled(4000, scale)
        said, spent = self.cost(0, "client", self.quick, 16, count, 600, 1, 1, 0)
        per_request = spent / count * 1e6
        self.note("failed", said["failed"])
        self.note("cpu_us_per_request", per_request)
        self.note("requests_per_s", count / said["seconds"])
        streams, tokens = scaled(256, scale), 100
        said, spent = self.cost(1, "client", self.paced, 128, streams, 600, tokens, 1, 0)
        self.note(
            "cpu_us_per_token", max(0.0, spent - streams * per_request / 1e6) / (streams * tokens) * 1e6
        )
        self.note("failed", said["failed"])
        said, _ = self.cost(0, "client", self.quick, 2, scaled(2000, scale), 600, 1, 1, 0)
        self.note("ttft_p50_us", said["ttft_p50_us"])
        self.note("ttft_p99_us", said["ttft_p99_us"])
        count = scaled(600, scale)  # CPU time comes in ticks of 10 ms
        said, spent = self.cost(0, "client", self.quick, 2, count, 1 << 20, 1, 1, 0)
        self.note("cpu_us_per_1mb_prompt", spent / count * 1e6)
        self.note("failed", said["failed"])
        drops = listen_drops()
        said, _ = self.cost(0, "burst", self.quick, scaled(BURST, scale), 1)
        self.note("burst_listen_drops", listen_drops() - drops)
        self.note("burst_ttft_p50_us", said["ttft_p50_us"])
        self.note("failed", said["failed"])

    def memory(self, streams: int) -> None:
        """Resident memory with that many open streams, less that without."""
        if self.pids is None:
            return
        before = rss_bytes(self.pids[2])
        with holding(self.slow, streams):
            self.note("streams_held", streams)
            self.note("mb_at_streams", rss_bytes(self.pids[2]) / 1e6)
            self.note("kb_per_stream", (rss_bytes(self.pids[2]) - before) / streams / 1e3)


@contextlib.contextmanager
def holding(port: int, streams: int, tokens: int = 1_000_000) -> Iterator[None]:
    """That many streams open at once."""
    process = subprocess.Popen(
        [str(tool()), "hold", str(port), str(streams), str(tokens)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        line = process.stdout.readline()
        if line != b"held\n":
            raise SystemExit(
                f"{streams:,} streams could not be opened at port {port}: {line.decode().strip()}"
            )
        time.sleep(0.5)
        yield
    finally:
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def measure(rounds: int, scale: float, *, is_compiled: bool) -> dict[str, dict[str, float]]:
    """Every contender, interleaved; medians by figure."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contenders = started(stack, folder)
        for contender in contenders:
            with stage(f"{contender.name}: start", 3 * UP_S + 10):
                for port in contender.ports:
                    wait_up(port)
        for pid in contenders[1].pids or []:
            compiled.check(pid, is_compiled=is_compiled)
        streams = scaled(STREAMS, scale)
        for contender in contenders[1:]:
            with stage(f"{contender.name}: memory at {streams:,} open streams", HOLD_S):
                contender.memory(streams)
        for number in range(1, rounds + 1):
            for contender in contenders:
                with stage(f"{contender.name}: round {number} of {rounds}", ROUND_S):
                    contender.round(scale)
        table = {}
        for contender in contenders:
            table[contender.name] = {
                k: statistics.median(v) for k, v in contender.figures.items() if k != "failed"
            }
            table[contender.name]["failed"] = sum(contender.figures["failed"])
        return table


def started(stack: contextlib.ExitStack, folder: Path) -> list[Contender]:
    """The engines, and in front of each pair of them a proxy of each kind."""
    router = router_command()
    for ports, interval in ENGINES:
        for port in ports:
            stack.enter_context(
                running([str(tool()), "engine", str(port), "20", str(interval)], core=LOAD_CORE)
            )
    time.sleep(0.3)
    contenders = [Contender("direct", (QUICK[1], PACED[1], SLOW[1]), None)]
    commands: dict[str, list[tuple[int, list[str]]]] = {"ours": [], "vllm-router": []}
    for number, (engines, _) in enumerate(ENGINES):
        port, other = OURS + 2 * number, ROUTER + 2 * number
        commands["ours"].append((port, ours_command(port, port + 1, engines, folder)))
        if router is not None:
            commands["vllm-router"].append((other, router_of(router, other, engines)))
    for name, each in commands.items():
        if each:
            pids = [
                stack.enter_context(running(command, core=PROXY_CORE, log=folder / f"{port}.log")).pid
                for port, command in each
            ]
            quick, paced, slow = (port for port, _ in each)
            contenders.append(Contender(name, (quick, paced, slow), pids))
    return contenders


TARGETS = (
    ("cpu_us_per_request", 0.5), ("cpu_us_per_token", 1.0), ("added_ttft_p99_us", 1.0),
    ("kb_per_stream", 0.2), ("cpu_us_per_1mb_prompt", 1.0),
)  # fmt: skip


def finish(table: dict[str, dict[str, float]]) -> dict[str, object]:
    """Derived figures and the ratios to the peer."""
    direct = table["direct"]
    for name, row in table.items():
        if name == "direct":
            continue
        row["added_ttft_p50_us"] = row["ttft_p50_us"] - direct["ttft_p50_us"]
        row["added_ttft_p99_us"] = row["ttft_p99_us"] - direct["ttft_p99_us"]
        row["tokens_per_s_one_core"] = 1e6 / row["cpu_us_per_token"] if row["cpu_us_per_token"] else 0.0
        row["requests_per_s_one_core"] = 1e6 / row["cpu_us_per_request"] if row["cpu_us_per_request"] else 0.0
    result: dict[str, object] = {"schema": "disaggc.bench-proxy/v1", "table": table}
    peer = table.get("vllm-router")
    if peer is not None:
        ratios = {name: table["ours"][name] / peer[name] for name, _ in TARGETS if peer.get(name)}
        result["ratios"] = {
            n: {"value": ratios[n], "target": t, "met": ratios[n] <= t} for n, t in TARGETS if n in ratios
        }
    return result


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="length of every stage; 1 = as in the docs")
    parser.add_argument(
        "--realtime", action="store_true", help="FIFO priority, where other work shares the machine"
    )
    parser.add_argument("--interpreted", action="store_true", help="ours is this checkout, not compiled")
    options = parser.parse_args()
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
    if options.scale <= 0:
        parser.error("--scale is above 0")
    is_compiled = compiled.use(interpreted=options.interpreted)
    result = finish(measure(options.rounds, options.scale, is_compiled=is_compiled))
    result["scale"], result["rounds"], result["compiled"] = options.scale, options.rounds, is_compiled
    if options.json:
        print(json.dumps(result, indent=2))
        return 0
    table = result["table"]
    names = list(table)
    print(f"ours is {'compiled, as its wheel installs it' if is_compiled else 'interpreted'}")
    print(f"{'':28}" + "".join(f"{name:>16}" for name in names))
    for figure in sorted({figure for row in table.values() for figure in row}):
        cells = (f"{table[name][figure]:16.1f}" if figure in table[name] else f"{'-':>16}" for name in names)
        print(f"{figure:28}" + "".join(cells))
    for name, ratio in result.get("ratios", {}).items():
        print(
            f"{name:28} {ratio['value']:6.2f} of the router's, target {ratio['target']}: {'met' if ratio['met'] else 'MISSED'}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
