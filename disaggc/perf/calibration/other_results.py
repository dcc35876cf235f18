"""Results of AIPerf and rows of InferenceX -> readings. AIPerf names its units, InferenceX writes seconds."""

from __future__ import annotations

import math
import re

from disaggc.perf.calibration.figures import Figures
from disaggc.perf.calibration.reading import UNKNOWN, Dropped, Reading, Setting
from disaggc.perf.calibration.vllm_result import setting_of

_TIMES = {"ms": 1e-3, "milliseconds": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "us": 1e-6, "ns": 1e-9}


def aiperf_reading(run: Figures, dropped: list[Dropped]) -> Reading:
    """One run of AIPerf."""

    def count(metric: str) -> float:
        block = run.within(metric)
        return UNKNOWN if block is None else block.number("avg")

    def time(metric: str) -> float:
        block = run.within(metric)
        if block is None:
            return UNKNOWN
        unit = str(block.run.get("unit", "")).lower()
        if unit not in _TIMES:
            dropped.append(
                Dropped(run.name, f"`{metric}` dropped", f"its unit `{unit[:20]}` is not one of time")
            )
            return UNKNOWN
        return block.time("p50", "avg") * _TIMES[unit]

    given = run.within("input_config")
    load, endpoint = (given.within(key) if given else None for key in ("loadgen", "endpoint"))
    names = endpoint.run.get("model_names") if endpoint else None
    model = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None
    completed, failed = count("request_count"), count("error_request_count")
    rate = load.unbounded("request_rate") if load else UNKNOWN
    per_second = count("request_throughput")
    return Reading(
        name=run.name,
        tool="aiperf",
        setting=setting_of(run).over(Setting(model=model)),
        isl=count("input_sequence_length"),
        osl=count("output_sequence_length"),
        concurrency=load.cap("concurrency") if load else UNKNOWN,
        rate=rate if rate > 0 else math.inf,
        sent=_whole(completed) + _whole(failed),
        completed=_whole(completed),
        failed=_whole(failed),
        duration_s=completed / per_second if per_second > 0 else UNKNOWN,
        ttft_s=time("time_to_first_token"),
        tpot_s=time("inter_token_latency"),
        e2e_s=time("request_latency"),
    )


def _whole(value: float) -> int:
    return int(value) if math.isfinite(value) else 0


def _said(run: Figures, key: str) -> bool:
    """A yes or no, as text or not; no where there is none."""
    value = run.run.get(key)
    if value is not None and str(value).lower() not in {"true", "false", ""}:
        run.note(key, "is neither true nor false")
    return str(value).lower() == "true"


def inferencex_reading(run: Figures) -> Reading:
    """A row of InferenceX: seconds already, lengths uniform in 0.8 to 1 of the nominal ones."""
    cap = float(run.count("conc")) or UNKNOWN
    workers = run.count("decode_num_workers") or run.count("num_decode_workers")
    width = "decode_tp" if "decode_tp" in run.run else "tp"
    parallel = run.count(width) if re.match(r"[0-9]+", str(run.run.get(width, ""))) else 0
    attention = _said(run, "decode_dp_attention" if "decode_dp_attention" in run.run else "dp_attention")
    shape = (f"dp{parallel} ep{parallel}" if attention else f"tp{parallel}") if parallel else None
    count = int(10 * cap) if math.isfinite(cap) else 0
    return Reading(
        name=run.name,
        tool="InferenceX",
        setting=setting_of(run).over(
            Setting(
                model=run.text("model"),
                accelerator=run.text("hw"),
                shape=shape,
                replicas=workers or None,
                kind="pd" if _said(run, "disagg") else "colocated",
            )
        ),
        isl=0.9 * run.number("isl"),
        osl=0.9 * run.number("osl"),
        concurrency=cap,
        rate=math.inf,
        sent=count,
        completed=count,
        failed=0,
        duration_s=UNKNOWN,
        ttft_s=run.time("median_ttft"),
        tpot_s=run.time("median_tpot"),
        itl_s=run.time("median_itl"),
        e2e_s=run.time("median_e2el"),
    )
