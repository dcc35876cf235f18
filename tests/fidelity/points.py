"""Rows of a measured table -> points: one configuration with all the figures published for it, in base units.

Knows the table's columns and its spellings, no model of performance. A row that cannot be used is kept with its reason.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

_CONFIGURATION = (
    "source", "model", "precision", "gpu", "n_gpus", "backend", "mode", "p_workers", "p_parallel", "p_gpus",
    "d_workers", "d_parallel", "d_gpus", "isl", "osl", "concurrency", "rate_rps", "slo",
)  # fmt: skip
COLUMNS = (*_CONFIGURATION, "row_id", "nodes", "metric", "value", "unit", "split", "note")
NEEDED = ("source", "model", "gpu", "mode", "isl", "osl", "metric", "value")
"""Without these no row says anything; others may be missing, which counts as empty."""
QUANTITIES = {
    "ttft": "ttft_p50", "median_ttft": "ttft_p50", "p99_ttft": "ttft_p99", "mean_ttft": "ttft_mean",
    "median_tpot": "tpot", "mean_tpot": "tpot", "median_itl": "itl_p50", "p99_itl": "itl_p99",
    "median_e2el": "e2e_p50", "mean_e2el": "e2e_mean",
    "total_throughput": "total_tps", "total_token_throughput": "total_tps", "total_throughput_per_gpu": "total_tps_gpu",
    "output_throughput": "output_tps", "output_throughput_per_gpu": "output_tps_gpu",
    "request_throughput": "rps", "gen_tps_per_user": "user_tps", "kv_transfer_time": "kv_s",
    "input_throughput_per_node": "prefill_tps_node", "prefill_throughput_per_gpu": "prefill_tps_gpu",
    "prefill_throughput": "prefill_tps", "output_throughput_per_node": "decode_tps_node",
    "decode_throughput_per_gpu": "decode_tps_gpu",
}  # fmt: skip
"""Published metric (without `_ms`) -> the quantity that is predicted."""
_POSSIBLE = {
    "isl": (1, 1e7), "osl": (1, 1e7), "concurrency": (1, 1e6), "rate_rps": (1e-6, math.inf), "n_gpus": (1, 1e5),
    "p_workers": (1, 1e4), "p_gpus": (1, 1e5), "d_workers": (0, 1e4), "d_gpus": (0, 1e5),
}  # fmt: skip
"""What these columns may say where they say a number: least and most."""
_SECONDS = {"ms": 1e-3, "s": 1.0, "us": 1e-6}


@dataclass(slots=True)
class Point:
    """One configuration. measured: quantity -> values in base units, each with its row id."""

    source: str
    model: str
    precision: str
    gpu: str
    backend: str
    mode: str
    n_gpus: float
    p_workers: float
    p_parallel: str
    p_gpus: float
    d_workers: float
    d_parallel: str
    d_gpus: float
    isl: float
    osl: float
    concurrency: float
    rate: float
    nominal_osl: float
    note: str
    requests: float
    """Of the run; NaN where the table does not say."""
    held_back: bool = False
    """The table says that the row is of another split than those the committed figures come from."""
    measured: dict[str, list[tuple[str, float]]] = field(default_factory=dict)

    @property
    def system(self) -> tuple[str, ...]:
        """What one calibration covers: model, precision, accelerator, engine, source."""
        return (
            self.source,
            self.model,
            self.precision,
            self.gpu,
            self.backend.split()[0] if self.backend else "",
        )

    @property
    def layout(self) -> tuple[object, ...]:
        """The pools, without the load."""
        return (self.mode, self.p_workers, self.p_parallel, self.d_workers, self.d_parallel, self.n_gpus)

    @property
    def cached(self) -> bool:
        """The table itself warns that a prefix cache answered part of the prompts: no measure of prefill."""
        return "partly cached" in self.note

    @property
    def closed(self) -> bool:
        """So many requests in flight on so many accelerators: what the lines of the reference table are about."""
        return math.isfinite(self.concurrency) and math.isfinite(self.n_gpus)

    def value(self, quantity: str) -> float:
        """Mean of what was published for a quantity; NaN where nothing was."""
        found = [v for _, v in self.measured.get(quantity, ())]
        return sum(found) / len(found) if found else math.nan


@dataclass(frozen=True, slots=True)
class Table:
    """All points of a file, and the rows that are not points: reason -> how many. sha256: of the file."""

    points: tuple[Point, ...]
    rows: tuple[dict[str, str], ...]
    skipped: Counter[str]
    sha256: str


class TableError(Exception):
    """A file that is no table of measurements, and why."""


def read_table(path: Path) -> Table:
    """Every row of a table; TableError where it is none."""
    try:
        written = path.read_bytes()
        read = csv.DictReader(io.StringIO(written.decode("utf-8"), newline=""))
        rows = [{c: (row.get(c) or "").strip() for c in COLUMNS} for row in read]
        missing = [c for c in NEEDED if c not in (read.fieldnames or ())]
    except OSError as problem:
        raise TableError(problem.strerror or "it cannot be read") from problem
    except (UnicodeDecodeError, csv.Error) as problem:
        raise TableError("it is not a CSV file in UTF-8") from problem
    if missing:
        raise TableError(
            f"its first line does not name the columns {', '.join(missing)}" if written else "it is empty"
        )
    if not rows:
        raise TableError("it holds no row below its header")
    points: dict[tuple[str, ...], Point] = {}
    skipped: Counter[str] = Counter()
    for row in rows:
        quantity, value = _quantity(row)
        if quantity is None:
            skipped[f"metric `{row['metric']}` is not predicted row by row"] += 1
        elif not math.isfinite(value) or value <= 0:
            skipped["no positive value"] += 1
        elif (odd := _impossible(row)) is not None:
            skipped[odd] += 1
        else:
            key = (*(row[c] for c in _CONFIGURATION), _series(row))
            point = points.setdefault(key, _point(row))
            point.measured.setdefault(quantity, []).append((row["row_id"], value))
    return Table(tuple(points.values()), tuple(rows), skipped, hashlib.sha256(written).hexdigest())


def _impossible(row: dict[str, str]) -> str | None:
    """The first column that says what no run can have."""
    for column, (least, most) in _POSSIBLE.items():
        found = number(row[column])
        if not (math.isnan(found) or least <= found <= most):
            return f"column `{column}` says {row[column]}, which no run has"
    return None


def _series(row: dict[str, str]) -> str:
    """Rows of one configuration that the note tells apart: with and without speculative decoding, runs of their own."""
    mtp = "mtp" if re.search(r"\bMTP\b(?! row)", row["note"]) and "noMTP" not in row["note"] else ""
    return f"{mtp} {_requests(row):g}"


def _requests(row: dict[str, str]) -> float:
    """Requests of the run: stated, or ten times the cap, which is the rule of that harness (its notes and scripts)."""
    told = re.search(r"num_prompts=(\d+)|\b(\d+) reqs\b", row["note"])
    if told:
        return float(told.group(1) or told.group(2))
    return 10 * number(row["concurrency"]) if row["source"].startswith("inferencex_") else math.nan


def _quantity(row: dict[str, str]) -> tuple[str | None, float]:
    name = row["metric"].lower().removesuffix("_ms").removesuffix("_s")
    quantity, value = QUANTITIES.get(name), number(row["value"])
    scale = _SECONDS.get(row["unit"].lower(), 1.0)
    return quantity, value * (
        scale if quantity and quantity.split("_")[0] in {"ttft", "tpot", "itl", "e2e", "kv"} else 1.0
    )


def number(text: str) -> float:
    """A number, or NaN where the column holds text or nothing."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _point(row: dict[str, str]) -> Point:
    osl = number(row["osl"])
    told = re.search(r"actual mean output (\d+) tok", row["note"])
    isl = number(row["isl"])
    if "uniform in [0.8,1.0]" in row["note"] or row["source"].startswith("inferencex_"):
        isl, osl = (x if row["source"] == "inferencex_token_position" else 0.9 * x for x in (isl, osl))
    return Point(
        **{
            c: row[c]
            for c in (
                "source",
                "model",
                "precision",
                "gpu",
                "backend",
                "mode",
                "p_parallel",
                "d_parallel",
                "note",
            )
        },
        **{
            c: number(row[c]) for c in ("n_gpus", "p_workers", "p_gpus", "d_workers", "d_gpus", "concurrency")
        },
        isl=isl,
        osl=float(told.group(1)) if told else osl,
        rate=number(row["rate_rps"]),
        nominal_osl=number(row["osl"]),
        requests=_requests(row),
        held_back=row["split"] not in {"", "dev"},
    )
