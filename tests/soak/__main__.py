"""Everything that takes long: `python -m tests.soak [--part NAME] [--write]`, or `make soak`.

Prints a table; --write keeps it as docs/benchmarks/soak.md with date and commit. Ends with 1 when a part did not hold.
"""

from __future__ import annotations

import argparse
import datetime as dt
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from tests.conftest import ROOT
from tests.soak import days, endurance, suites
from tests.soak.part import Part

PARTS: dict[str, Callable[[], Part]] = {
    "laws": suites.laws,
    "fuzz": suites.fuzz,
    "days": days.replay,
    "endurance": endurance.run,
}
TABLE = ROOT / "docs" / "benchmarks" / "soak.md"
HEAD = "| part | tried | minutes | result |\n| --- | --- | --- | --- |"


def timed(part: Callable[[], Part]) -> Part:
    """With the minutes it took."""
    begun = time.monotonic()
    found = part()
    return replace(found, minutes=(time.monotonic() - begun) / 60)


def page(rows: list[str]) -> str:
    """The kept table."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    today = dt.datetime.now(tz=dt.UTC).date()
    lines = "\n".join([HEAD, *rows])
    return f"# Soak\n\n`make soak`, {today}, commit {said.stdout.strip() or 'unknown'}.\n\n{lines}\n"


def main() -> int:
    """Run the parts in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one (repeatable)")
    parser.add_argument("--write", action="store_true", help="keep the table")
    options = parser.parse_args()
    print(HEAD, flush=True)
    found = []
    for name in options.part or PARTS:
        found.append(timed(PARTS[name]))
        print(found[-1].row(), flush=True)
    if options.write:
        TABLE.write_text(page([part.row() for part in found]))
    return int(any(part.faults for part in found))


if __name__ == "__main__":
    sys.exit(main())
