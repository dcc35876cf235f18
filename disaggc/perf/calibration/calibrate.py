"""Result files -> the calibration of every (model, accelerator, shape) in them, and what was learnt on the way.

Reads files and the catalog; writes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from disaggc import __version__
from disaggc.catalog.load import Catalog
from disaggc.catalog.sizing import kv_bytes_per_token
from disaggc.ir.plan import Shape
from disaggc.perf.calibration.advice import Advice, most_useful
from disaggc.perf.calibration.checks import checked
from disaggc.perf.calibration.engine_fit import fit_engine
from disaggc.perf.calibration.formats import read_results
from disaggc.perf.calibration.prior_step import PriorEngine
from disaggc.perf.calibration.reading import Dropped, Reading, Setting
from disaggc.perf.calibration.schedule import SEQUENCES, schedule
from disaggc.perf.calibration.written import Fitted, calibration_of
from disaggc.perf.calibration_file import Calibration, Provenance

_USUAL = 16384
"""Context limit at which a fit is to predict where no run says its own."""


@dataclass(frozen=True, slots=True)
class Advised:
    """A fitted engine and the run that would teach most about it; None where nothing would.

    of_spec: the run stands in the schedule of the spec that these runs were made for.
    """

    fitted: Fitted
    next_run: Advice | None
    of_spec: bool = False


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Everything a set of result files gave. calibration: None where nothing could be fitted."""

    calibration: Calibration | None
    engines: tuple[Advised, ...]
    runs: int
    dropped: tuple[Dropped, ...]


def shape_from(text: str) -> Shape | None:
    """`tp8`, `tp4 dp2 ep8` as plans write shapes; None where it is something else."""
    parts = re.findall(r"(tp|pp|dp|ep|dcp)(\d{1,4})", text)
    if not parts or re.sub(r"(tp|pp|dp|ep|dcp)\d{1,4}|[\s,]", "", text):
        return None
    sizes = {name: int(size) for name, size in parts}
    return Shape(**sizes) if min(sizes.values()) > 0 and len(sizes) == len(parts) else None


def calibrate(paths: Sequence[Path], over: Setting, catalog: Catalog) -> Calibrated:
    """Reads, checks and fits. over: what the user says, before anything the files say."""
    readings, dropped = read_results(paths)
    engines: dict[tuple[str, str, Shape], list[Reading]] = {}
    for reading in readings:
        key = _engine_of(reading, over, catalog)
        if isinstance(key, str):
            dropped.append(Dropped(reading.name, "run skipped", key))
        else:
            engines.setdefault(key, []).append(_with(reading, over))
    advised = []
    for (model, accelerator, shape), found_runs in engines.items():
        facts = catalog.model(model)
        runs, kv_dtype = _of_one_cache(found_runs, dropped)
        engine = PriorEngine.of(catalog, model, (accelerator, shape), kv_dtype=kv_dtype)
        longest = max((r.setting.longest or 0 for r in runs), default=0)
        bench = schedule(longest or _USUAL, SEQUENCES)
        kept, lost = checked(runs, engine)
        fit = fit_engine(
            kept,
            kv_bytes_per_token=sum(kv_bytes_per_token(facts, kv_dtype)) if facts else None,
            prior=engine,
            asked=bench,
        )
        dropped += [*lost, *fit.dropped]
        tokens = [r.setting.kv_tokens for r in runs if r.setting.kv_tokens]
        fitted = Fitted(model, accelerator, shape, fit, min(tokens) if tokens else None)
        if engine is not None:
            asked = [(r.concurrency, r.isl + r.osl / 2) for r in bench if r.kind == "decode"]
            fitted = replace(fitted, beside=engine.pinned(), doubt=engine.step_doubt(asked))
        advised.append(Advised(fitted, most_useful(fit, bench, runs), of_spec=longest > 0))
    found = [a.fitted for a in advised if a.fitted.fit.parts or a.fitted.kv_tokens]
    calibration = calibration_of(found, _provenance(readings, found)) if found else None
    return Calibrated(calibration, tuple(advised), len(readings), tuple(dropped))


def _of_one_cache(runs: Sequence[Reading], dropped: list[Dropped]) -> tuple[list[Reading], str]:
    """The runs with the precision of the KV cache that the first says, or none says: bytes follow from it."""
    kind = next((r.setting.kv_dtype for r in runs if r.setting.kv_dtype), "auto")
    kept = [r for r in runs if r.setting.kv_dtype in {None, kind}]
    dropped += [
        Dropped(
            r.name, "run skipped", f"its KV cache is `{r.setting.kv_dtype:.40}`, that of others `{kind:.40}`"
        )
        for r in runs
        if r.setting.kv_dtype not in {None, kind}
    ]
    return kept, kind


def _with(reading: Reading, over: Setting) -> Reading:
    return replace(reading, setting=over.over(reading.setting))


def _engine_of(reading: Reading, over: Setting, catalog: Catalog) -> tuple[str, str, Shape] | str:
    """What the run was made on, or what is missing to know it."""
    setting = over.over(reading.setting)
    if setting.model is None:
        return "its model is unknown: pass `--model`"
    if setting.accelerator is None:
        return "its accelerator is unknown: pass `--accelerator`"
    accelerator = catalog.accelerator(setting.accelerator.lower())
    if accelerator is None:
        return f"accelerator `{setting.accelerator[:40]}` is not in the catalog: pass `--accelerator`"
    shape = shape_from(setting.shape or "")
    if shape is None:
        unread = (
            f"`{setting.shape[:40]}` is no shape" if setting.shape else "the shape of its engines is unknown"
        )
        return f"{unread}: pass `--shape`, e.g. tp8"
    return setting.model, accelerator.id, shape


def _provenance(readings: Iterable[Reading], fitted: Sequence[Fitted]) -> Provenance:
    used = {_file_of(run) for one in fitted for run in one.fit.runs}
    errors = {}
    for one in fitted:
        for part in one.fit.parts:
            errors[f"{one.accelerator} {one.shape} {part.title}"] = float(f"{part.unseen_error:.3g}")
    return Provenance(
        tool="disaggc calibrate",
        disaggc=__version__,
        sources=tuple(sorted({reading.tool for reading in readings})),
        digests=_digests(sorted(path for path in used if path.is_file())),
        errors=errors,
    )


def _file_of(run: str) -> Path:
    """`a.json[3]` is the fourth run of `a.json`."""
    return Path(re.sub(r"\[\d+\]$", "", run))


def _digests(files: Sequence[Path]) -> dict[str, str]:
    """By name; by path where several are called alike, as the runs of a sweep are."""
    names = Counter(file.name for file in files)
    return {file.name if names[file.name] == 1 else str(file): _digest(file) for file in files}


def _digest(path: Path) -> str:
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
