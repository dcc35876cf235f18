"""The scoreboard: every source and quantity under every column, the reference table's lines, what was skipped and why."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from disaggc.perf.spread import Measure
from tests.fidelity.columns import COLUMNS, UNFITTED, Board, Judged, board_of
from tests.fidelity.line import Line, spread_of
from tests.fidelity.lines import lines_of
from tests.fidelity.points import Table
from tests.fidelity.simulated import simulated_line
from tests.fidelity.widths import MEASURE_OF

_KINDS: tuple[tuple[str, Measure], ...] = (
    ("first_token", "first_token"), ("first_token_p99", "first_token_tail"), ("token", "token"),
    ("token_p99", "token_tail"), ("throughput_and_end_to_end", "flow"),
)  # fmt: skip
Document = dict[str, Any]
_STRANGE = {
    "inferencex_token_position": "its authors call its code experimental and likely wrong; MiniMax-M2.5 has its first token "
    "after 477 ms on eight H200 there, after 90 ms on four in inferencex_via_aic_agg: 1,024 tokens, four in flight, vLLM"
}
"""What else is known of sources whose accelerator had to be assumed."""


def scoreboard(table: Table, extra: Iterable[Line], *, quick: bool = False, jobs: int = 1) -> Document:
    """Everything the table allows, in so many processes. quick: without fits."""
    board = board_of(table.points, UNFITTED if quick else COLUMNS, jobs=jobs)
    lines = (
        *(() if quick else (*lines_of(board, table.points), simulated_line(board.asked, board.calibrated))),
        *extra,
    )
    skipped = dict(sorted((board.skipped + table.skipped).items(), key=lambda item: -item[1]))
    return {
        "data": {"rows": len(table.rows), "sha256": table.sha256},
        "judged": len(board.judged),
        "lines": {line.name: _line(line) for line in lines},
        "ranges": _ranges(board),
        "sources": _sources(board.judged),
        "skipped": skipped,
    }


def _line(line: Line) -> Document:
    out: Document = {"bar": line.bar}
    if line.figures:
        out["figures"] = {k: _rounded(v) for k, v in line.figures.items()}
    return out | ({"note": line.missing} if line.missing else {})


def _ranges(board: Board) -> Document:
    """Share of measured values inside the printed 80 % range, by kind of figure.

    A source whose table does not name the accelerator is judged on one that had to be assumed: it is shown apart.
    """
    assumed = {a.subject.point.source for a in board.asked if a.subject.assumed}
    out: Document = {}
    for column in ("prior", "others", "calibrated"):
        judged = [j for j in board.judged if column in j.said]
        named = [j for j in judged if j.source not in assumed]
        if named:
            by_kind = {label: [j for j in named if MEASURE_OF[j.quantity] == kind] for label, kind in _KINDS}
            shown = {"all": named, **by_kind, "accelerator_assumed_too": judged}
            out[column] = {label: _rounded(_inside(found, column)) for label, found in shown.items() if found}
    out["accelerator_assumed"] = sorted(assumed)
    return out


def _inside(found: Sequence[Judged], column: str) -> float:
    return sum(j.said[column].low <= j.measured <= j.said[column].high for j in found) / len(found)


def _sources(judged: Sequence[Judged]) -> Document:
    groups: dict[str, dict[str, list[Judged]]] = defaultdict(lambda: defaultdict(list))
    for j in judged:
        groups[j.source][j.quantity].append(j)
    return {
        source: {quantity: _columns(found) for quantity, found in quantities.items()}
        for source, quantities in groups.items()
    }


def _columns(found: Sequence[Judged]) -> Document:
    out: Document = {}
    for column in COLUMNS:
        seen = [j for j in found if column in j.said]
        if seen:
            errors = [j.said[column].value / j.measured - 1 for j in seen]
            figures = {
                **spread_of(errors),
                "bias": statistics.median(errors),
                "in_range": _inside(seen, column),
            }
            out[column] = {k: _rounded(v) for k, v in figures.items()}
    return out


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def table_of(document: Document) -> str:
    """The document as Markdown."""
    rows = [
        "# Fidelity scoreboard",
        "",
        "Written by `python -m tests.fidelity --write`; the figures are those of the last run, whatever they are.",
        "naive: roofline at data-sheet peaks. prior: what a plan says of hardware nobody measured. others: constants fitted on",
        "all other sources. calibrated: fitted on every second point of a system, judged on the points between.",
        "Each cell: mean absolute error / median / 90 % quantile / bias (median signed error), share of measured values inside",
        "the printed 80 % range, and of how many rows where not of all.",
        "Ranges are those a plan prints, their factors (`disaggc/perf/spread.json`) taken from all sources but the one judged;",
        "`others` uses those of `prior`. Runs are as long as the table says, ten times the cap in InferenceX's.",
        "",
        "## Lines of the reference table",
        "",
    ]
    for name, line in document["lines"].items():
        rows.append(
            f"- **{name}** (bar: {line['bar']}): {_figures(line.get('figures', {}))} {line.get('note', '')}".rstrip()
        )
    rows += ["", "## Share inside the printed 80 % range", ""]
    rows += [
        f"- {column}: {_figures(f)}"
        if isinstance(f, dict)
        else f"- accelerator assumed, counted in the last figure only: {', '.join(map(_assumed, f))}"
        for column, f in document["ranges"].items()
    ]
    rows += [
        "",
        "## By source",
        "",
        "| source | quantity | rows | " + " | ".join(COLUMNS) + " |",
        "|---|---|---|" + "---|" * len(COLUMNS),
    ]
    for source, quantities in document["sources"].items():
        for quantity, columns in quantities.items():
            count = int(columns["prior"]["rows"])
            cells = " | ".join(_cell(columns.get(c), count) for c in COLUMNS)
            rows.append(f"| {source} | {quantity} | {count} | {cells} |")
    rows += ["", "## Skipped rows", ""] + [f"- {count}: {why}" for why, count in document["skipped"].items()]
    return "\n".join(rows) + "\n"


def _assumed(source: str) -> str:
    return f"{source} ({_STRANGE[source]})" if source in _STRANGE else source


def _cell(figures: Document | None, count: int) -> str:
    """count: of the line; a column that judged fewer rows says how many."""
    if figures is None:
        return ""
    errors = (
        f"{figures['mape']:.1%} / {figures['median']:.1%} / {figures['p90']:.0%} / {figures['bias']:+.0%}"
    )
    rows = "" if figures["rows"] == count else f", of {figures['rows']:.0f}"
    return f"{errors}, in {figures['in_range']:.0%}{rows}"


def _figures(figures: dict[str, float]) -> str:
    return ", ".join(f"{k.replace('_', ' ')} {v:.3g}" for k, v in figures.items())
