"""Workload classes with every length, rate and bound as plain figures; reads the traces they name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from disaggc.diagnostics import Diagnostic, FieldPath, error
from disaggc.resolve.lengths import constant, from_histogram, from_quantiles, from_samples
from disaggc.resolve.model import Bound, ClassLoad, Lengths
from disaggc.resolve.trace_rows import TraceError
from disaggc.resolve.traces import TRACE_LIMIT, Trace, arrival_cv, read_trace
from disaggc.spec.files import Reader, Unreadable, decode
from disaggc.spec.workload import (
    Length,
    LengthHistogram,
    LengthQuantiles,
    LengthTrace,
    Objectives,
    WorkloadClass,
)

_METRICS: tuple[Literal["ttft", "itl", "e2e"], ...] = ("ttft", "itl", "e2e")
_PERCENTILES: tuple[Literal[50, 90, 99], ...] = (50, 90, 99)


@dataclass(slots=True)
class TraceFiles:
    """The traces of one spec, each read once. locate: field path and text -> path of the file."""

    read: Reader
    locate: Callable[[FieldPath, str], Path]
    findings: list[Diagnostic] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)
    """Of the contents, since they shape the plan."""
    _known: dict[Path, Trace | str] = field(default_factory=dict)

    def trace(self, name: str, path: FieldPath) -> Trace | None:
        """The trace that a field names; None where it cannot be used, which is reported."""
        file = self.locate(path, name)
        if file not in self._known:
            self._known[file] = self._read(file)
        found = self._known[file]
        if isinstance(found, str):
            self.report(name, path, found)
            return None
        return found

    def report(self, name: str, path: FieldPath, problem: str) -> None:
        """The trace that a field names cannot serve it; said once for each field."""
        finding = error("DGC101", f"trace `{name[:80]}`: {problem}", path)
        if finding not in self.findings:
            self.findings.append(finding)

    def _read(self, file: Path) -> Trace | str:
        content = self.read(file, TRACE_LIMIT)
        text = decode(content) if isinstance(content, bytes) else content
        if isinstance(text, Unreadable):
            return text.message
        try:
            found = read_trace(text)
        except TraceError as problem:
            return str(problem)
        self.digests.add(hashlib.sha256(text.encode()).hexdigest())
        return found


def resolve_classes(
    classes: Mapping[str, WorkloadClass], path: FieldPath, traces: TraceFiles
) -> tuple[ClassLoad, ...] | None:
    """Every class, or None where a trace cannot be used (reported there)."""
    loads = [_class(name, given, ((*path, name), traces)) for name, given in classes.items()]
    whole = tuple(load for load in loads if load is not None)
    return whole if len(whole) == len(loads) else None


def _class(name: str, given: WorkloadClass, context: tuple[FieldPath, TraceFiles]) -> ClassLoad | None:
    path, traces = context
    isl = _length(given.input_tokens, (*path, "input_tokens"), traces)
    osl = _length(given.output_tokens, (*path, "output_tokens"), traces)
    variation = _variation(given, path, traces)
    if isl is None or osl is None or variation is None:
        return None
    return ClassLoad(
        name=name,
        isl=isl,
        osl=osl,
        rate=given.rate,
        concurrency=given.concurrency,
        arrival_cv=variation,
        prefix_hit=given.prefix_hit,
        bounds=_bounds(given.objectives),
        priority=given.priority,
    )


def _length(given: Length, path: FieldPath, traces: TraceFiles) -> Lengths | None:
    match given:
        case LengthQuantiles():
            return from_quantiles(given)
        case LengthHistogram():
            return from_histogram(given)
        case LengthTrace():
            place = (*path, "trace")
            trace = traces.trace(given.trace, place)
            samples = () if trace is None else trace.inputs if path[-1] == "input_tokens" else trace.outputs
            if trace is not None and not samples:
                kind = "input" if path[-1] == "input_tokens" else "output"
                traces.report(given.trace, place, f"no column of {kind} tokens with a value above zero")
            return from_samples(samples) if samples else None
        case int():
            return constant(float(given))


def _variation(given: WorkloadClass, path: FieldPath, traces: TraceFiles) -> float | None:
    """Coefficient of variation between arrivals; Poisson (1) where nothing is said."""
    arrivals = given.arrivals
    if arrivals is None or arrivals.trace is None:
        return 1.0 if arrivals is None or arrivals.cv is None else arrivals.cv
    place = (*path, "arrivals", "trace")
    trace = traces.trace(arrivals.trace, place)
    if trace is None:
        return None
    variation = arrival_cv(trace.times)
    if variation is None:
        traces.report(arrivals.trace, place, "fewer than three arrival times that differ")
    return variation


def _bounds(objectives: Objectives) -> tuple[Bound, ...]:
    return tuple(
        Bound(metric, percentile, limit)
        for metric in _METRICS
        for percentile in _PERCENTILES
        if (limit := getattr(objectives, f"{metric}_p{percentile}")) is not None
    )
