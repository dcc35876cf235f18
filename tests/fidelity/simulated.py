"""The held-out line by the event simulator: constants from every second row of a system, the rows between simulated.

`vllm bench serve` semantics: all requests offered at once, the cap holds them back, lengths even in [0.8, 1] x nominal,
ten times the cap in all. To bound the CPU a run is cut at six caps (or 20,000 requests, whichever is more) and goes on
at its steady rate from there: that is exact where it is steady. Knows no closed form.

    python -m tests.fidelity.simulated [--data FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from disaggc.perf.events import Front, Load, Run, simulate
from tests.fidelity.asking import Asked, NoRoomError
from tests.fidelity.columns import calibrated
from tests.fidelity.line import Line, held_out
from tests.fidelity.lines import HELD_OUT
from tests.fidelity.points import Point, TableError, read_table
from tests.fidelity.subjects import subject_of
from tests.fidelity.systems import Fitted, informed

SOURCE = "inferencex_via_aic"
NAME = "InferenceX disaggregated: alternate rows held out, event simulator"
BAR = "TPOT 7.7 %, tok/s/GPU 12.0 % (p90 32 %), TTFT within 2x 62 %"
_WAVES, _LEAST_WAVES, _ENOUGH = 10, 6, 20_000


@dataclass(frozen=True, slots=True)
class Cut:
    """Requests that are simulated, and that there would have been."""

    requests: int
    whole: int

    @classmethod
    def of(cls, cap: float) -> Cut:
        """As many as needed to be steady."""
        whole = int(_WAVES * cap)
        return cls(min(whole, max(int(_LEAST_WAVES * cap), _ENOUGH)), whole)


def simulated_line(asked: Sequence[Asked], known: Mapping[int, Fitted]) -> Line:
    """The figures over the rows held out. known: by index, the constants of the rows between."""
    found = [
        _ratios(informed(asked[i], fit))
        for i, fit in known.items()
        if asked[i].subject.point.source == SOURCE and asked[i].subject.point.closed
    ]
    if not found:
        return Line(NAME, BAR, missing="no system with six rows")
    return Line(NAME, BAR, held_out({label: [r[label] for r in found if label in r] for label in HELD_OUT}))


def _ratios(one: Asked) -> dict[str, float]:
    """Simulated over measured."""
    point, cut = one.subject.point, Cut.of(one.subject.point.concurrency)
    run = simulate(
        one.subject.models, one.subject.service, one.subject.layout, load=load_of(point, cut.requests),
        front=Front(admission=None),
    )  # fmt: skip
    seen = run.classes[0]
    said = {"tpot": seen.tpot.p50, "ttft": seen.ttft.p50, "tok_s_gpu": _throughput(run, cut) / point.n_gpus}
    return {label: said[label] / point.value(q) for label, q in HELD_OUT.items() if q in point.measured}


def load_of(point: Point, requests: int) -> Load:
    """What that harness offers; the table's lengths are means."""
    nominal = [max(1, round(mean / 0.9)) for mean in (point.isl, point.osl)]
    return Load.bench(nominal[0], nominal[1], concurrency=point.concurrency, requests=requests, jitter=0.8)


def _throughput(run: Run, cut: Cut) -> float:
    """Tokens per second of the whole run, what was cut out of it going at the steady rate."""
    if cut.requests == cut.whole or run.steady is None:
        return run.whole.total_tok_per_s
    left = (cut.whole - cut.requests) / run.steady.req_per_s
    tokens = run.whole.total_tok_per_s * run.whole.to_s + left * run.steady.total_tok_per_s
    return tokens / (run.whole.to_s + left)


def asked_of(data: Path) -> Iterator[Asked]:
    """Every row of the source that fits."""
    for point in read_table(data).points:
        subject = subject_of(point) if point.source == SOURCE else "another source"
        if isinstance(subject, str):
            continue
        try:
            yield Asked(subject)
        except NoRoomError:
            continue


def main() -> None:
    """Print the line."""
    shared = Path(os.environ.get("DISAGGC_SHARED", Path(__file__).parents[3] / "shared"))
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, default=shared / "data" / "measured" / "measured_dev.csv")
    data = options.parse_args().data
    try:
        asked = list(asked_of(data))
    except TableError as problem:
        options.exit(2, f"no measured rows in {data}: {problem}\n")
    line = simulated_line(asked, calibrated(asked))
    told = {"line": line.name, "bar": line.bar, "figures": line.figures, "note": line.missing}
    sys.stdout.write(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
