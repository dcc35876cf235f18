"""Result files -> readings: `vllm bench serve`, `vllm bench sweep` folders, AIPerf, InferenceX-style rows.

Recognises a format by its keys. Knows no figure, and not whether any is good.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from disaggc.perf.calibration.figures import Figures
from disaggc.perf.calibration.other_results import aiperf_reading, inferencex_reading
from disaggc.perf.calibration.reading import Dropped, Reading
from disaggc.perf.calibration.vllm_result import vllm_reading
from disaggc.spec.files import Unreadable, decode, read_file

_LARGEST = 256 * 2**20


class _TwiceError(ValueError):
    """An object has a key twice, so that nobody can say which value is meant."""


def read_results(paths: Iterable[Path]) -> tuple[list[Reading], list[Dropped]]:
    """Every run in these files and folders, and the files that hold none."""
    found = _Results()
    for path in paths:
        if os.path.isdir(path):  # noqa: PTH112 - unlike Path.is_dir it answers for every path
            found.folder(path)
        else:
            found.file(path)
    return found.readings, found.dropped


class _Results:
    """What was read so far. seen: digest of a run -> where it stands first."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.dropped: list[Dropped] = []
        self._seen: dict[bytes, str] = {}

    def folder(self, folder: Path) -> None:
        """Every result under it; links to folders are not followed, they may lead back."""
        files = sorted(self._under(folder))
        if not files:
            self.dropped.append(Dropped(str(folder), "folder skipped", "it holds no .json file"))
        for file in files:
            if file.name == "summary.json":  # of a sweep: the runs beside it once more
                continue
            if file.name.endswith(".failure.json"):
                self.dropped.append(Dropped(str(file), "run skipped", "the sweep reports it as failed"))
                continue
            self.file(file)

    def _under(self, folder: Path) -> Iterator[Path]:
        def unreadable(problem: OSError) -> None:
            why = (problem.strerror or "it cannot be read").lower()
            self.dropped.append(Dropped(str(problem.filename), "folder skipped", why))

        for where, _, names in os.walk(folder, onerror=unreadable):
            yield from (Path(where, name) for name in names if name.endswith(".json"))

    def file(self, file: Path) -> None:
        """The runs of one file: an object, a list of them, or one on each line (`--append-result`)."""
        content = read_file(file, _LARGEST)
        text = decode(content) if isinstance(content, bytes) else content
        if isinstance(text, Unreadable):
            self.dropped.append(Dropped(str(file), "file skipped", text.message))
            return
        runs = self._parsed(file, text)
        if runs == []:
            self.dropped.append(Dropped(str(file), "file skipped", "its list holds no run"))
        for number, run in enumerate(runs or ()):
            self._run(run, str(file) if len(runs or ()) == 1 else f"{file}[{number}]")

    def _parsed(self, file: Path, text: str) -> list[object] | None:
        try:
            parsed = json.loads(text, object_pairs_hook=_once)
        except json.JSONDecodeError as problem:
            if (several := _by_line(text)) is not None:
                return several
            where = f"it is not JSON: {problem.msg.lower()} at line {problem.lineno}, column {problem.colno}"
            self.dropped.append(Dropped(str(file), "file skipped", where if text.strip() else "it is empty"))
        except _TwiceError as problem:
            self.dropped.append(Dropped(str(file), "file skipped", f"`{problem}` stands twice in one object"))
        except RecursionError:
            self.dropped.append(Dropped(str(file), "file skipped", "it is nested too deep"))
        except ValueError:  # the only one left of the parser's
            why = "it is not JSON: a whole number has thousands of digits"
            self.dropped.append(Dropped(str(file), "file skipped", why))
        else:
            return parsed if isinstance(parsed, list) else [parsed]
        return None

    def _run(self, run: object, name: str) -> None:
        digest = hashlib.sha256(json.dumps(run, sort_keys=True).encode("ascii")).digest()
        if digest in self._seen:
            self.dropped.append(Dropped(name, "run skipped", f"it is the same as {self._seen[digest]}"))
            return
        self._seen[digest] = name
        found = _reading(Figures(run, name, self.dropped), self.dropped) if isinstance(run, dict) else None
        if found is None:
            self.dropped.append(Dropped(name, "run skipped", "its format is not one that is known"))
        else:
            self.readings.append(found)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _TwiceError(next(key for key in keys if keys.count(key) > 1)[:40])
    return found


def _by_line(text: str) -> list[object] | None:
    """An object on each line; None where one is not."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return None
    try:
        found = [json.loads(line, object_pairs_hook=_once) for line in lines]
    except (ValueError, RecursionError):
        return None
    return found if all(isinstance(run, dict) for run in found) else None


def _reading(run: Figures, dropped: list[Dropped]) -> Reading | None:
    keys = run.run.keys()
    if {"total_input_tokens", "completed"} <= keys:
        return vllm_reading(run, dropped)
    if "time_to_first_token" in keys or "request_latency" in keys:
        return aiperf_reading(run, dropped)
    if "conc" in keys and ("median_tpot" in keys or "median_ttft" in keys):
        return inferencex_reading(run)
    return None
