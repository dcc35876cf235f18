"""Many concurrent streams through one proxy: `python -m tests.bench.proxy_streams [--streams 10000] [--workers 2]`.

Two clients and three engines in processes of their own. Every stream must be open at the same moment and end whole.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests import compiled
from tests.bench.proxy import (
    CORES,
    children,
    cpu_s,
    descriptors,
    ours_command,
    rss_bytes,
    running,
    tool,
    wait_up,
)
from tests.bench.stages import stage

PREFILL, DECODES, PORT, ADMIN = 19300, (19301, 19302), 19310, 19311
TOKENS, EVERY_S = 5, 6.0
OPEN_S, END_S = 300, 300
"""After this long the opening of all streams, or their end, is given up."""


def metric(name: str) -> float:
    """A metric of the proxy, summed over its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{ADMIN}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.split("{")[0].split(" ")[0] == f"disaggc_proxy_{name}"
    )


def two_decodes(path: Path) -> None:
    """Add the second decode engine to the routing file."""
    table = json.loads(path.read_text())
    first = table["pools"][1]["replicas"][0]
    table["pools"][1]["replicas"].append({**first, "address": "bench/decode/1", "port": DECODES[1]})
    path.write_text(json.dumps(table))


@contextlib.contextmanager
def client(port: int, streams: int, tokens: int) -> Iterator[subprocess.Popen[bytes]]:
    """A client that opens so many streams; ended afterwards."""
    process = subprocess.Popen(
        [str(tool()), "hold", str(port), str(streams), str(tokens)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def said(process: subprocess.Popen[bytes]) -> bytes:
    """The next line of a client."""
    assert process.stdout is not None
    return process.stdout.readline()


def outcome(line: bytes) -> dict[str, int]:
    """What a client counted; nothing when it ended without its streams open."""
    if not line.startswith(b"{"):
        return {"requests": 0, "failed": 0, "tokens": 0}
    found: dict[str, int] = json.loads(line)
    return found


def measure(streams: int, workers: int, *, is_compiled: bool) -> dict[str, object]:
    """Open them, look, let them end."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cores = set(CORES)
        stack.enter_context(running([str(tool()), "engine", str(PREFILL), "1", "0"], core=cores))
        for port in DECODES:
            stack.enter_context(
                running([str(tool()), "engine", str(port), "5", str(int(EVERY_S * 1e6))], core=cores)
            )
        command = ours_command(PORT, ADMIN, (PREFILL, DECODES[0]), folder, workers)
        two_decodes(folder / f"routing-{PORT}.json")
        proxy = stack.enter_context(running(command, core=cores, log=folder / "proxy.log"))
        with stage("start", 70):
            time.sleep(1)
            wait_up(PORT)
        compiled.check(proxy.pid, is_compiled=is_compiled)
        before, cpu = rss_bytes(proxy.pid), cpu_s(proxy.pid)
        begun = time.monotonic()
        with stage(f"open {streams:,} streams", OPEN_S):
            clients = [stack.enter_context(client(PORT, streams // 2, TOKENS)) for _ in range(2)]
            held = [said(each) == b"held\n" for each in clients]
        opened = time.monotonic() - begun
        at_once = metric("streams_open")
        memory, files = rss_bytes(proxy.pid), descriptors(proxy.pid)
        shares = [descriptors(pid) for pid in children(proxy.pid)]
        with stage("streams end", END_S):
            results = [outcome(said(each)) for each in clients]
        time.sleep(0.5)
        return {
            "schema": "disaggc.bench-streams/v1",
            "compiled": is_compiled, "streams": streams, "workers": workers, "held": all(held), "open_at_once": at_once,
            "opened_in_s": round(opened, 2), "failed": sum(r["failed"] for r in results),
            "finished": sum(r["requests"] for r in results),
            "tokens": sum(r["tokens"] for r in results), "tokens_expected": streams * TOKENS,
            "rss_mb": round(memory / 1e6, 1), "kb_per_stream": round((memory - before) / streams / 1e3, 2),
            "descriptors": files, "descriptors_by_worker": shares,
            "cpu_s": round(cpu_s(proxy.pid) - cpu, 2), "open_after": metric("streams_open"),
            "ok_total": metric("requests_ok_total") - 1,
        }  # fmt: skip


def main() -> int:
    """Run and print; 1 when a stream failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--interpreted", action="store_true", help="this checkout instead of the compiled package"
    )
    options = parser.parse_args()
    is_compiled = compiled.use(interpreted=options.interpreted)
    result = measure(options.streams, options.workers, is_compiled=is_compiled)
    print(json.dumps(result, indent=2))
    good = (
        result["failed"] == 0
        and result["finished"] == options.streams
        and result["open_at_once"] == options.streams
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
