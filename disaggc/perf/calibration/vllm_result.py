"""A result of `vllm bench serve`, with or without `--save-detailed` -> a reading. Times in it are milliseconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from disaggc.perf.calibration.figures import Figures
from disaggc.perf.calibration.reading import UNKNOWN, Dropped, Reading, Requests, RunKind, Setting
from disaggc.perf.calibration_file import MOST_KV_TOKENS

_KINDS: tuple[RunKind, ...] = ("decode", "prefill", "mixed", "pd", "colocated")
_LISTS = ("input_lens", "output_lens", "ttfts", "itls")
_EMPTY = 0.02
"""Share of answers without a token up to which the rest is taken for the run."""
_LONGEST = 1e8
"""Tokens of a prompt or an answer that no model takes."""


def setting_of(run: Figures) -> Setting:
    """What `--metadata key=value` says of a run; those keys stand beside the tool's own."""
    blocks = run.count("num_gpu_blocks") * run.count("block_size")
    return Setting(
        model=run.text("disaggc_model"),
        accelerator=run.text("disaggc_accelerator"),
        shape=run.text("disaggc_shape"),
        replicas=_replicas(run),
        kind=run.choice("disaggc_run", _KINDS),
        kv_tokens=min(blocks, MOST_KV_TOKENS) or None,
        kv_dtype=run.text("disaggc_kv_dtype"),
        longest=run.count("disaggc_max_model_len") or None,
        roles=run.text("disaggc_roles"),
    )


def _replicas(run: Figures) -> int | None:
    found = run.count("disaggc_replicas")
    if found == 0 and run.run.get("disaggc_replicas") in (0, "0"):
        run.note("disaggc_replicas", "is zero")
    return found or None


def vllm_reading(run: Figures, dropped: list[Dropped]) -> Reading:
    """One run."""
    completed = run.count("completed")
    rate = run.unbounded("request_rate")
    if rate == 0:
        run.note("request_rate", "is zero")
    sent = run.count("num_prompts") or completed
    itl, itl_p99 = _typical(run, "itl")
    return Reading(
        name=run.name,
        tool="vllm bench serve",
        setting=setting_of(run).over(Setting(model=run.text("model_id"))),
        isl=_each(run, "total_input_tokens", completed),
        osl=_each(run, "total_output_tokens", completed),
        concurrency=run.cap("max_concurrency"),
        rate=rate if rate > 0 else math.inf,
        sent=sent,
        completed=completed,
        failed=run.count("failed") if "failed" in run.run else max(0, sent - completed),
        duration_s=run.positive("duration"),
        ttft_s=_typical(run, "ttft")[0],
        tpot_s=_typical(run, "tpot")[0],
        itl_s=itl,
        itl_p99_s=itl_p99,
        e2e_s=_typical(run, "e2el")[0],
        acceptance=run.number("spec_decode_acceptance_rate"),
        requests=_requests(run, completed, dropped),
    )


def _typical(run: Figures, metric: str) -> tuple[float, float]:
    """(median, else mean; 99th percentile) in seconds; neither where the percentile is below the median."""
    middle = run.time(f"median_{metric}_ms", f"p50_{metric}_ms")
    most = run.time(f"p99_{metric}_ms")
    if most < middle:
        run.note(f"p99_{metric}_ms", f"is below the median of {middle:.4g}, so neither is used")
        return UNKNOWN, UNKNOWN
    found = middle if math.isfinite(middle) else run.time(f"mean_{metric}_ms")
    return found / 1000, most / 1000


def _each(run: Figures, key: str, completed: int) -> float:
    """Tokens per request from a total."""
    return run.number(key) / completed if completed else UNKNOWN


def _requests(run: Figures, completed: int, dropped: list[Dropped]) -> Requests | None:
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
    starts = _beside(run, "start_times", list(range(count)))
    errors = _beside(run, "errors", [""] * count)
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
    if not _as_many(len(rows), completed):
        why = f"{len(rows)} of them have an answer, {completed} completed"
        dropped.append(Dropped(run.name, "requests one by one dropped", why))
        return None
    columns = tuple(zip(*rows, strict=True)) if rows else ((), (), (), (), ())
    return Requests(*columns)


def _as_many(rows: int, completed: int) -> bool:
    """Answers without a token count as completed to the tool, and have no times."""
    return (1 - _EMPTY) * completed <= rows <= completed


def _beside(run: Figures, key: str, otherwise: Sequence[object]) -> Sequence[object]:
    given = run.run.get(key)
    if isinstance(given, list) and len(given) == len(otherwise):
        return given
    if given is not None:
        run.note(key, f"is not a list of {len(otherwise)}")
    return otherwise


def _row(
    start: object, times: tuple[object, object], tokens: tuple[object, object]
) -> tuple[float, float, float, int, int]:
    """(start, first token, mean time of a token, prompt tokens, output tokens); ValueError where one makes no sense."""
    first, each = float(str(times[0])), _token_time(times[1])
    start_s, prompt, output = float(str(start)), int(str(tokens[0])), int(str(tokens[1]))
    if not (0 < first < math.inf and math.isfinite(start_s)) or each <= 0 or each == math.inf:
        raise ValueError(first)
    if not (0 <= prompt <= _LONGEST and 0 < output <= _LONGEST):
        raise ValueError(prompt)
    return start_s, first, each, prompt, output


def _token_time(itls: object) -> float:
    """Mean time of a token after the first; NaN where there is none. One that is no number spoils the request."""
    found = [float(x) for x in itls] if isinstance(itls, list) else []
    if not all(math.isfinite(x) for x in found):
        raise ValueError(found[0])
    return sum(found) / len(found) if found else UNKNOWN
