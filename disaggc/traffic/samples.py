"""The sample log: what each finished request was, one JSON line each, so that traffic can be replayed and re-planned.

Never holds text of a prompt or an answer. Pure: lines in, lines out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class Sample:
    """One request: when it came (seconds), its class, lengths in tokens, times in seconds."""

    arrived_s: float
    workload: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    ttft_s: float = 0.0
    e2e_s: float = 0.0
    ok: bool = True


def write_sample(sample: Sample) -> str:
    """One line, with its line break."""
    return json.dumps(asdict(sample), separators=(",", ":")) + "\n"


_FIELDS = {field.name for field in fields(Sample)}


def read_samples(lines: Iterable[str]) -> Iterator[Sample]:
    """The samples of a log; a line cut off by a crash is skipped, unknown keys are ignored."""
    for line in lines:
        try:
            entry = json.loads(line)
            sample = Sample(**{key: entry[key] for key in entry if key in _FIELDS})
        except (ValueError, TypeError):
            continue
        yield sample
