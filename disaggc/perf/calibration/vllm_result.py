"""A result of `vllm bench serve`, with or without `--save-detailed` -> a reading. Times in it are milliseconds."""

from __future__ import annotations

import math

from disaggc.perf.calibration.figures import Figures
from disaggc.perf.calibration.reading import UNKNOWN, Dropped, Reading, Requests, RunKind, Setting

_KINDS: tuple[RunKind, ...] = ("decode", "prefill", "mixed", "pd", "colocated")
_LISTS = ("input_lens", "output_lens", "ttfts", "itls")


def setting_of(run: Figures) -> Setting:
    """What `--metadata key=value` says of a run; those keys stand beside the tool's own."""
    kind = run.text("disaggc_run")
    blocks = run.count("num_gpu_blocks") * run.count("block_size")
    return Setting(
        model=run.text("disaggc_model"),
        accelerator=run.text("disaggc_accelerator"),
        shape=run.text("disaggc_shape"),
        replicas=run.count("disaggc_replicas") or None,
        kind=next((known for known in _KINDS if known == kind), None),
        kv_tokens=blocks or None,
    )


def vllm_reading(run: Figures, dropped: list[Dropped]) -> Reading:
    """One run."""
    completed = run.count("completed")
    rate = run.number("request_rate")
    sent = run.count("num_prompts") or completed

    def median(metric: str) -> float:
        return run.time(*(f"{statistic}_{metric}_ms" for statistic in ("median", "p50", "mean"))) / 1000

    return Reading(
        name=run.name,
        tool="vllm bench serve",
        setting=setting_of(run).over(Setting(model=run.text("model_id"))),
        isl=_each(run, "total_input_tokens", completed),
        osl=_each(run, "total_output_tokens", completed),
        concurrency=run.number("max_concurrency"),
        rate=math.inf if math.isnan(rate) else rate,
        sent=sent,
        completed=completed,
        failed=run.count("failed") if "failed" in run.run else max(0, sent - completed),
        duration_s=run.time("duration"),
        ttft_s=median("ttft"),
        tpot_s=median("tpot"),
        itl_s=median("itl"),
        itl_p99_s=run.time("p99_itl_ms") / 1000,
        e2e_s=median("e2el"),
        acceptance=run.number("spec_decode_acceptance_rate"),
        requests=_requests(run, dropped),
    )


def _each(run: Figures, key: str, completed: int) -> float:
    """Tokens per request from a total."""
    return run.number(key) / completed if completed else UNKNOWN


def _requests(run: Figures, dropped: list[Dropped]) -> Requests | None:
    """What `--save-detailed` adds; failed requests have an error and no tokens."""
    found = run.run
    if not any(isinstance(found.get(key), list) for key in _LISTS):
        return None
    lists = [found.get(key) for key in _LISTS]
    whole = [each for each in lists if isinstance(each, list)]
    if len(whole) < len(_LISTS) or len({len(each) for each in whole}) != 1:
        why = f"{', '.join(_LISTS)} are not lists of one length"
        dropped.append(Dropped(run.name, "requests one by one dropped", why))
        return None
    count = len(whole[0])
    starts = _beside(found.get("start_times"), list(range(count)))
    errors = _beside(found.get("errors"), [""] * count)
    try:
        rows = sorted(
            _row(start, (ttft, itls), (prompt, output))
            for start, prompt, output, ttft, itls, problem in zip(starts, *whole, errors, strict=True)
            if not problem and output
        )
    except (TypeError, ValueError, OverflowError):
        why = "they hold a time or a length that is not a number above zero"
        dropped.append(Dropped(run.name, "requests one by one dropped", why))
        return None
    columns = tuple(zip(*rows, strict=True)) if rows else ((), (), (), (), ())
    return Requests(*columns)


def _beside(given: object, otherwise: list[object]) -> list[object]:
    return given if isinstance(given, list) and len(given) == len(otherwise) else otherwise


def _row(
    start: object, times: tuple[object, object], tokens: tuple[object, object]
) -> tuple[float, float, float, int, int]:
    """(start, first token, mean time of a token, prompt tokens, output tokens); ValueError where one makes no sense."""
    first, each = float(str(times[0])), _token_time(times[1])
    prompt, output = int(str(tokens[0])), int(str(tokens[1]))
    if first <= 0 or each <= 0 or prompt < 0 or not math.isfinite(first):
        raise ValueError(first)
    return float(str(start)), first, each, prompt, output


def _token_time(itls: object) -> float:
    found = [float(x) for x in itls] if isinstance(itls, list) else []
    return sum(found) / len(found) if found else UNKNOWN
