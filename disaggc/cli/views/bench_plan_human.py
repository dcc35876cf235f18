"""The bench runs that calibrate a plan's engines, as lines for a shell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from disaggc.perf.calibration.bench_plan import EngineBench
from disaggc.perf.calibration.schedule import ENGINE, PROXY
from disaggc.units import counted, format_duration


def bench_plan_text(benches: Sequence[EngineBench]) -> str:
    """Every engine, what to start before its runs, and what to do with the results."""
    lines = [line for bench in benches for line in _engine(bench)]
    results = " ".join(dict.fromkeys(f"{bench.service}-*.json" for bench in benches))
    return "\n".join([*lines, f"# then: disaggc calibrate {results} --out calibration.yaml"])


def _engine(bench: EngineBench) -> Iterator[str]:
    roles, time = " and ".join(role.value for role in bench.roles), bench.time
    yield (
        f"# {bench.service}: {roles} engines, {bench.shape} on {bench.accelerator}: {counted(len(bench.runs), 'run')}, "
        f"about {format_duration(time.value)} ({format_duration(time.low)} to {format_duration(time.high)})"
    )
    if any(timed.run.kind != "pd" for timed in bench.runs):
        yield f"# {ENGINE}: one {bench.shape} engine, prefix caching off (`--no-enable-prefix-caching`)"
    if bench.decode is not None:
        pair = f"one {bench.shape} prefill and one {bench.decode} decode engine"
        yield f"# {PROXY}: the proxy of {pair}; OPENAI_API_KEY: its key"
    yield from (timed.command for timed in bench.runs)
