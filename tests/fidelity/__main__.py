"""`python -m tests.fidelity [--data FILE] [--json] [--quick] [--check] [--write] [--spread] [--carried]`: how far predictions are from measurements."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from disaggc.perf import carried
from disaggc.perf.spread import FILE
from tests.fidelity import kin
from tests.fidelity.claims import claim_lines
from tests.fidelity.columns import asked_of, board_of
from tests.fidelity.line import Line
from tests.fidelity.points import Table, TableError, read_table
from tests.fidelity.ratios import negative_controls, vendor_choices
from tests.fidelity.scoreboard import scoreboard, table_of
from tests.fidelity.widths import document_of, miss_of
from tests.fidelity.worse import worse

HERE = Path(__file__).parent
COMMITTED = HERE / "scoreboard.json"
_SHOWN = 4
"""Reasons that are told where no row can be used."""
SHARED = Path(os.environ.get("DISAGGC_SHARED", HERE.parents[2] / "shared")) / "data" / "measured"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the scoreboard; 1 with --check where a figure got worse than committed, 2 without a row to judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.fidelity", description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        default=SHARED / "measured_dev.csv",
        help="a CSV with the columns of the measured table",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.add_argument("--quick", action="store_true", help="only what needs no fit")
    parser.add_argument("--check", action="store_true", help="fail where a figure is worse than committed")
    parser.add_argument(
        "--write", action="store_true", help="commit these figures: write scoreboard.json and SCOREBOARD.md"
    )
    parser.add_argument(
        "--spread", action="store_true", help="write the range factors that plans use from these measurements"
    )
    parser.add_argument(
        "--carried",
        action="store_true",
        help="write how far levels of two shapes lie apart, by which plans carry measurements",
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each processor)"
    )
    given = parser.parse_args(arguments)
    if not given.data.exists():
        sys.stderr.write(f"no measured rows at {given.data}: set DISAGGC_SHARED or pass --data\n")
        return 2
    try:
        table = read_table(given.data)
    except TableError as problem:
        sys.stderr.write(f"no measured rows in {given.data}: {problem}\n")
        return 2
    if given.carried or given.spread:
        return _write_carried(table) if given.carried else _write_spread(table, given.jobs)
    document = scoreboard(table, extra_lines(), quick=given.quick, jobs=given.jobs)
    if not document["judged"] and (given.quick or not any("kv_s" in p.measured for p in table.points)):
        why = "; ".join(f"{count} x {reason}" for reason, count in list(document["skipped"].items())[:_SHOWN])
        sys.stderr.write(f"no row of {given.data} can be judged: {why}\n")
        return 2
    text = json.dumps(document, indent=1) + "\n"
    if given.write:
        COMMITTED.write_text(text, encoding="utf-8")
        (HERE / "SCOREBOARD.md").write_text(table_of(document), encoding="utf-8")
    sys.stdout.write(text if given.json else table_of(document))
    if given.check:
        found = worse(document, json.loads(COMMITTED.read_text(encoding="utf-8")))
        sys.stderr.writelines(f"worse than committed: {line}\n" for line in found)
        return 1 if found else 0
    return 0


def _write_spread(table: Table, jobs: int) -> int:
    """Writes the factors; predictions of this process still carry those there were."""
    board = board_of(table.points, ("naive", "prior", "calibrated"), jobs=jobs)
    if not board.judged:
        sys.stderr.write(f"no row can be judged, {FILE} is left as it is\n")
        return 2
    document: dict[str, object] = {
        "version": 1,
        "written_by": "python -m tests.fidelity --spread",
        "data_sha256": table.sha256,
    }
    for column in ("prior", "calibrated"):
        said = [(j, j.plain[column]) for j in board.judged if column in j.plain]
        misses = [m for j, p in said if (m := miss_of(j.source, j.quantity, j.measured, p)) is not None]
        document[column] = document_of(misses)
    FILE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"wrote {FILE}\n")
    return 0


def _write_carried(table: Table) -> int:
    document = {
        "version": 1,
        "written_by": "python -m tests.fidelity --carried",
        "data_sha256": table.sha256,
        **kin.document_of(asked_of(table.points).asked),
    }
    carried.FILE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"wrote {carried.FILE}\n")
    return 0


def extra_lines() -> tuple[Line, ...]:
    """Lines that do not come from the measured table."""
    choices = SHARED / "ratio_choices_dev.csv"
    lines = [negative_controls()]
    claims = SHARED / "moreh_claims.csv"
    if claims.exists():
        lines += claim_lines(claims)
    if choices.exists():
        lines.append(vendor_choices(choices))
    return tuple(lines)


if __name__ == "__main__":
    sys.exit(main())
