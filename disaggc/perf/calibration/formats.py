"""Result files -> readings: `vllm bench serve`, `vllm bench sweep` folders, AIPerf, InferenceX-style rows.

Recognises a format by its keys. Knows no figure, and not whether any is good.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from disaggc.perf.calibration.figures import Figures
from disaggc.perf.calibration.other_results import aiperf_reading, inferencex_reading
from disaggc.perf.calibration.reading import Dropped, Reading
from disaggc.perf.calibration.vllm_result import vllm_reading

_LARGEST = 256 * 2**20


def read_results(paths: Iterable[Path]) -> tuple[list[Reading], list[Dropped]]:
    """Every run in these files and folders, and the files that hold none."""
    readings: list[Reading] = []
    dropped: list[Dropped] = []
    for path in paths:
        files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if path.is_dir() and not files:
            dropped.append(Dropped(str(path), "folder skipped", "it holds no .json file"))
        for file in files:
            if path.is_dir() and file.name == "summary.json":  # of a sweep: the runs beside it once more
                continue
            if path.is_dir() and file.name.endswith(".failure.json"):
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
    if not runs:
        dropped.append(Dropped(str(file), "file skipped", "its list holds no run"))
    for number, run in enumerate(runs):
        name = str(file) if len(runs) == 1 else f"{file}[{number}]"
        found = _reading(Figures(run, name, dropped), dropped) if isinstance(run, dict) else None
        if found is None:
            dropped.append(Dropped(name, "run skipped", "its format is not one that is known"))
        else:
            readings.append(found)


def _reading(run: Figures, dropped: list[Dropped]) -> Reading | None:
    keys = run.run.keys()
    if {"total_input_tokens", "completed"} <= keys:
        return vllm_reading(run, dropped)
    if "time_to_first_token" in keys or "request_latency" in keys:
        return aiperf_reading(run, dropped)
    if "conc" in keys and ("median_tpot" in keys or "median_ttft" in keys):
        return inferencex_reading(run)
    return None
