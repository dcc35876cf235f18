"""What a calibration found, for people: fits with their errors, what is not pinned down, what was left aside."""

from __future__ import annotations

import math
from collections.abc import Iterator

from disaggc.perf.calibration.calibrate import Advised, Calibrated
from disaggc.perf.calibration.parts import Part
from disaggc.perf.constants import Range
from disaggc.units import counted

_UNITS = {
    "decode_fixed_s": "ms", "decode_per_sequence_s": "us/sequence", "decode_per_token_s": "ns/token of context",
    "prefill_s": "ms", "prefill_per_token_s": "us/token", "prefill_per_square_s": "ps/token^2",
    "kv_setup_s": "ms", "kv_byte_s": "ns/byte",
    "step_miss": "x the model's step", "batch_slope": "power of the batch",
    "kappa": "x a decode step alone", "mixed_s": "ms",
}  # fmt: skip
_SCALES = {
    "ms": 1e3,
    "us/sequence": 1e6,
    "ns/token of context": 1e9,
    "us/token": 1e6,
    "ps/token^2": 1e12,
    "ns/byte": 1e9,
    "x the model's step": 1.0,
    "power of the batch": 1.0,
    "x a decode step alone": 1.0,
}

_IF_IT_FITS = ", within what the engine takes: these runs do not say of which spec's schedule they are"


def report(done: Calibrated) -> str:
    """The report that goes beside the file."""
    return "\n".join(_lines(done))


def _lines(done: Calibrated) -> Iterator[str]:
    yield f"{counted(done.runs, 'run')} read"
    for engine in done.engines:
        yield from _engine(engine)
    if done.dropped:
        yield f"\nleft aside ({len(done.dropped)}):"
        yield from (f"  {one}" for one in done.dropped)


def _engine(engine: Advised) -> Iterator[str]:
    one = engine.fitted
    yield f"\n{one.model} on {one.accelerator}, {one.shape}"
    if not one.fit.parts:
        yield "  nothing could be fitted; the priors stay"
    for part in one.fit.parts:
        yield from _part(part)
    for name, given in one.fit.single.items():
        yield f"  {_constant(name, given)}"
    if one.kv_tokens:
        yield f"  KV {counted(one.kv_tokens, 'token')} per engine, measured"
    if engine.next_run is not None:
        advice, run = engine.next_run, engine.next_run.run
        gain = ""
        if advice.before is not None and advice.after is not None:
            gain = f", expected error {advice.before:.1%} -> {advice.after:.1%}"
        where = " (`disaggc calibrate --plan` of their spec prints it)" if engine.of_spec else _IF_IT_FITS
        yield (
            f"  most useful next run: {run.kind}, {run.isl} in, {run.osl} out, {run.concurrency} in flight{gain}{where}"
        )


def _part(part: Part) -> Iterator[str]:
    left_out = "too few runs to leave one out"
    if part.left_out_error is not None:
        left_out = f"{part.left_out_error:.1%} with each run left out"
    yield f"  {part.title}: {counted(len(part.runs), 'run')}, error {part.error:.1%}, {left_out}"
    geometry = part.geometry()
    if geometry is not None and geometry.blurred:
        apart = (
            "cannot be told apart"
            if math.isinf(geometry.condition)
            else f"condition {geometry.condition:.0f}"
        )
        yield f"    seen only together by these runs: {', '.join(geometry.weakest)} ({apart})"
    for name, given in part.ranges().items():
        loose = "  not pinned down by these runs" if name in part.loose else ""
        yield f"    {_constant(name, given)}{loose}"


def _constant(name: str, given: Range) -> str:
    unit = _UNITS[name]
    low, mid, high = (value * _SCALES[unit] for value in (given.low, given.mid, given.high))
    return f"{name} {mid:.4g} {unit} [{low:.4g}, {high:.4g}]"
