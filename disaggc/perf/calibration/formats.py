"""Result files -> readings: `vllm bench serve`, `vllm bench sweep` folders, AIPerf, InferenceX-style rows.

Recognises a format by its keys. Knows how each tool spells a figure and its unit, not whether the figure is any good.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from disaggc.perf.calibration.reading import UNKNOWN, Dropped, Reading, Requests, RunKind, Setting

_KINDS: tuple[RunKind, ...] = ("decode", "prefill", "mixed", "pd", "colocated")
_LARGEST = 256 * 2**20
_UNITS = {"ms": 1e-3, "milliseconds": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "us": 1e-6, "ns": 1e-9}
Json = Mapping[str, Any]


def read_results(paths: Iterable[Path]) -> tuple[list[Reading], list[Dropped]]:
    """Every run in these files and folders, and the files that hold none."""
    readings: list[Reading] = []
    dropped: list[Dropped] = []
    for path in paths:
        files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if path.is_dir() and not files:
            dropped.append(Dropped(str(path), "folder skipped", "it holds no .json file"))
        for file in files:
            if path.is_dir() and (file.name == "summary.json" or file.name.endswith(".failure.json")):
                if file.name.endswith(".failure.json"):
                    dropped.append(Dropped(str(file), "run skipped", "the sweep reports it as failed"))
                continue
            _read_file(file, readings, dropped)
    return readings, dropped


def _read_file(file: Path, readings: list[Reading], dropped: list[Dropped]) -> None:
    try:
        if file.stat().st_size > _LARGEST:
            dropped.append(Dropped(str(file), "file skipped", f"it is larger than {_LARGEST // 2**20} MiB"))
            return
        parsed = json.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        dropped.append(Dropped(str(file), "file skipped", problem.strerror or "it cannot be read"))
        return
    except (ValueError, RecursionError):
        dropped.append(Dropped(str(file), "file skipped", "it is not JSON"))
        return
    runs = parsed if isinstance(parsed, list) else [parsed]
    for number, run in enumerate(runs):
        name = str(file) if len(runs) == 1 else f"{file}[{number}]"
        found = _reading(run, name) if isinstance(run, dict) else None
        if found is None:
            dropped.append(Dropped(name, "run skipped", "its format is not one that is known"))
        else:
            readings.append(found)


def _reading(run: Json, name: str) -> Reading | None:
    if "total_input_tokens" in run and "completed" in run:
        return _vllm(run, name)
    if "time_to_first_token" in run or "request_latency" in run:
        return _aiperf(run, name)
    if "conc" in run and ("median_tpot" in run or "median_ttft" in run):
        return _inferencex(run, name)
    return None


def number(value: object) -> float:
    """A figure, or NaN. `inf` is written as text."""
    if isinstance(value, bool) or value is None:
        return UNKNOWN
    try:
        return float(cast("str | float", value))
    except (TypeError, ValueError):
        return UNKNOWN


def _count(value: object) -> int:
    found = number(value)
    return int(found) if math.isfinite(found) else 0


def _setting(run: Json) -> Setting:
    """What `--metadata key=value` says of a run; those keys stand beside the tool's own."""
    kind = run.get("disaggc_run")
    replicas = _count(run.get("disaggc_replicas"))
    blocks = _count(run.get("num_gpu_blocks")) * _count(run.get("block_size"))
    return Setting(
        model=_text(run, "disaggc_model"),
        accelerator=_text(run, "disaggc_accelerator"),
        shape=_text(run, "disaggc_shape"),
        replicas=replicas or None,
        kind=kind if kind in _KINDS else None,
        kv_tokens=blocks or None,
    )


def _text(run: Json, key: str) -> str | None:
    value = run.get(key)
    return value if isinstance(value, str) and value else None


def _mean(run: Json, key: str, each: int) -> float:
    """Tokens per request from a total."""
    return number(run.get(key)) / each if each else UNKNOWN


def _vllm(run: Json, name: str) -> Reading:
    completed = _count(run.get("completed"))
    rate = number(run.get("request_rate"))
    sent = _count(run.get("num_prompts")) or completed

    def figure(metric: str) -> float:
        for statistic in ("median", "p50", "mean"):
            found = number(run.get(f"{statistic}_{metric}_ms"))
            if math.isfinite(found):
                return found / 1000
        return UNKNOWN

    return Reading(
        name=name,
        tool="vllm bench serve",
        setting=_setting(run).over(Setting(model=_text(run, "model_id"))),
        isl=_mean(run, "total_input_tokens", completed),
        osl=_mean(run, "total_output_tokens", completed),
        concurrency=number(run.get("max_concurrency")),
        rate=math.inf if math.isnan(rate) else rate,
        sent=sent,
        completed=completed,
        failed=_count(run.get("failed")) if "failed" in run else max(0, sent - completed),
        duration_s=number(run.get("duration")),
        ttft_s=figure("ttft"),
        tpot_s=figure("tpot"),
        itl_s=figure("itl"),
        itl_p99_s=number(run.get("p99_itl_ms")) / 1000,
        e2e_s=figure("e2el"),
        acceptance=number(run.get("spec_decode_acceptance_rate")),
        requests=_requests(run),
    )


def _requests(run: Json) -> Requests | None:
    """What `--save-detailed` adds; failed requests have an error and no tokens."""
    wanted = ("input_lens", "output_lens", "ttfts", "itls")
    if not all(isinstance(run.get(key), list) for key in wanted):
        return None
    lists = [run[key] for key in wanted]
    starts = run.get("start_times")
    starts = (
        starts if isinstance(starts, list) and len(starts) == len(lists[0]) else list(range(len(lists[0])))
    )
    errors = run.get("errors")
    errors = errors if isinstance(errors, list) and len(errors) == len(lists[0]) else [""] * len(lists[0])
    if len({len(each) for each in lists}) != 1:
        return None
    rows = sorted(
        (float(start), float(ttft), _token_time(itls), int(prompt), int(output))
        for start, prompt, output, ttft, itls, problem in zip(starts, *lists, errors, strict=True)
        if not problem and output
    )
    columns = tuple(zip(*rows, strict=True)) if rows else ((), (), (), (), ())
    return Requests(*columns)


def _token_time(itls: object) -> float:
    found = [float(x) for x in itls] if isinstance(itls, list) else []
    return sum(found) / len(found) if found else UNKNOWN


def _aiperf(run: Json, name: str) -> Reading:
    def figure(metric: str, statistic: str = "p50") -> float:
        block = run.get(metric)
        if not isinstance(block, dict):
            return UNKNOWN
        found = number(block.get(statistic, block.get("avg")))
        return found * _UNITS.get(str(block.get("unit", "")).lower(), 1.0)

    given = run.get("input_config")
    given = given if isinstance(given, dict) else {}
    load, endpoint = given.get("loadgen") or {}, given.get("endpoint") or {}
    names = endpoint.get("model_names") or [None]
    completed, failed = figure("request_count", "avg"), figure("error_request_count", "avg")
    rate = number(load.get("request_rate"))
    per_second = figure("request_throughput", "avg")
    return Reading(
        name=name,
        tool="aiperf",
        setting=_setting(run).over(Setting(model=names[0] if isinstance(names[0], str) else None)),
        isl=figure("input_sequence_length", "avg"),
        osl=figure("output_sequence_length", "avg"),
        concurrency=number(load.get("concurrency")),
        rate=math.inf if math.isnan(rate) else rate,
        sent=_count(completed) + _count(failed),
        completed=_count(completed),
        failed=_count(failed),
        duration_s=completed / per_second if per_second > 0 else UNKNOWN,
        ttft_s=figure("time_to_first_token"),
        tpot_s=figure("inter_token_latency"),
        e2e_s=figure("request_latency"),
    )


def _inferencex(run: Json, name: str) -> Reading:
    """A row of InferenceX: seconds already, lengths uniform in 0.8 to 1 of the nominal ones."""
    cap = number(run.get("conc"))
    workers = _count(run.get("decode_num_workers")) or _count(run.get("num_decode_workers"))
    tp = re.match(r"\d+", str(run.get("decode_tp", run.get("tp", ""))))
    parallel = _count(run.get("decode_tp", run.get("tp")))
    attention = str(run.get("decode_dp_attention", run.get("dp_attention", ""))).lower() == "true"
    shape = (f"dp{parallel} ep{parallel}" if attention else f"tp{parallel}") if tp else None
    return Reading(
        name=name,
        tool="InferenceX",
        setting=_setting(run).over(
            Setting(
                model=_text(run, "model"),
                accelerator=_text(run, "hw"),
                shape=shape,
                replicas=workers or None,
                kind="pd" if str(run.get("disagg", "")).lower() == "true" else "colocated",
            )
        ),
        isl=0.9 * number(run.get("isl")),
        osl=0.9 * number(run.get("osl")),
        concurrency=cap,
        rate=math.inf,
        sent=int(10 * cap) if math.isfinite(cap) else 0,
        completed=int(10 * cap) if math.isfinite(cap) else 0,
        failed=0,
        duration_s=UNKNOWN,
        ttft_s=number(run.get("median_ttft")),
        tpot_s=number(run.get("median_tpot")),
        itl_s=number(run.get("median_itl")),
        e2e_s=number(run.get("median_e2el")),
    )
