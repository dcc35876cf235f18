"""CPU seconds of the commands as whole processes, best of several runs, with what their imports cost.

python -m tests.bench.cpu [--runs N] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.stages import stage

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "deepseek-r1-mi300x" / "disaggc.yaml"
START = "import sys; from disaggc.cli.main import main; sys.exit(main(sys.argv[1:]))"
COMMANDS = {
    "--help": (["--help"], None),
    "validate": (["validate", str(EXAMPLE)], 0.6),
    "plan": (["plan", str(EXAMPLE), "--refresh=false"], 1.5),
    "build": (["build", str(EXAMPLE), "--out", "{out}"], None),
}
"""Command -> arguments and the CPU seconds it should stay under."""
RUN_S = 60
"""Wall seconds for one run of one command."""
HEAVY = ("ortools", "numpy", "pandas", "aiohttp", "pydantic", "yaml", "jinja2", "typer", "rich", "disaggc")


def cpu_seconds(arguments: list[str]) -> float:
    """User and system time of one process with its children, started cold."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            [sys.executable, "-c", START, *(argument.format(out=out) for argument in arguments)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.exit(f"disaggc {' '.join(arguments)} exited with {done.returncode}:\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def import_seconds(arguments: list[str]) -> dict[str, float]:
    """Self time of imports by top-level package."""
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", START, *(a.format(out=out) for a in arguments)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )
    spent: dict[str, float] = {}
    for microseconds, name in re.findall(
        r"^import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)$", done.stderr, re.MULTILINE
    ):
        top = name.split(".")[0].lstrip("_")
        top = "pydantic" if top.startswith("pydantic") else top
        top = top if top in HEAVY else "other"
        spent[top] = spent.get(top, 0.0) + int(microseconds) / 1e6
    return spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    rows = {}
    for name, (arguments, limit) in COMMANDS.items():
        with stage(f"{name}, {chosen.runs} runs", RUN_S * (chosen.runs + 1)):
            best = min(cpu_seconds(arguments) for _ in range(chosen.runs))
            rows[name] = {"cpu_s": round(best, 3), "limit_s": limit, "imports_s": import_seconds(arguments)}
    if chosen.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'command':<10} {'CPU s':>6} {'limit':>6}  imports (self time, with the tracer's own cost)")
    for name, row in rows.items():
        shown = ", ".join(
            f"{k} {v:.2f}" for k, v in sorted(row["imports_s"].items(), key=lambda i: -i[1]) if v >= 0.005
        )
        limit = f"{row['limit_s']:.1f}" if row["limit_s"] else "-"
        print(f"{name:<10} {row['cpu_s']:>6.2f} {limit:>6}  {shown}")


if __name__ == "__main__":
    main()
