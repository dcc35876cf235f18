"""Calibration files that people edited: each mistake is one finding at its place in the file, never an exception."""

from __future__ import annotations

import pytest

from disaggc.ir.plan import Role, Shape
from disaggc.perf.calibration_file import Calibration, Entry, MeasuredMemory, Provenance, read_calibration
from disaggc.perf.constant_bounds import BOUNDS, TOGETHER
from disaggc.perf.constants import NAMES
from disaggc.perf.memory import NoFit
from disaggc.perf.models import Models
from disaggc.resolve.model import CalibrationSource
from tests.perf.perf_cases import nodes, resolved, service

R1 = "deepseek-ai/DeepSeek-R1"
TP8 = Shape(tp=8)

HEAD = (
    "version: 1\nprovenance: {tool: x}\nentries:\n  - model: deepseek-ai/DeepSeek-R1\n    accelerator: h200\n"
    "    shape: {tp: 8}\n"
)
BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def constants(text: str) -> str:
    return f"{HEAD}    constants: {{{text}}}\n"


BAD = {
    "null": ("null\n", 1, "a mapping is wanted"),
    "list": ("- a\n", 1, "a mapping is wanted"),
    "newer": (HEAD.replace("version: 1", "version: 2"), 1, "another version"),
    "version-true": (HEAD.replace("version: 1", "version: true"), 1, "another version"),
    "deep": ("a: " + "[" * 100_000, 1, "nested"),
    "bomb": (BOMB, 5, "expands to more"),
    "itself": ("&a [*a]\n", 1, "contains itself"),
    "tag": ("!!python/object/apply:os.system [true]\n", 1, "has no meaning"),
    "two-documents": (constants("step_s: 0.001") + "---\nversion: 1\n", 8, "second document"),
    "duplicate": (constants("step_s: 0.001, step_s: 0.002"), 7, "stands twice"),
    "digits": (constants("step_s: " + "9" * 5000), 7, "a number or"),
    "date": (constants("step_s: 2024-13-45"), 7, "a number or"),
    "text": (constants('step_s: "0.5"'), 7, "a number or"),
    "comma": (constants('step_s: "0,5"'), 7, "a number or"),
    "bool": (constants("step_s: true"), 7, "a number or"),
    "nan": (constants("step_s: .nan"), 7, "a number or"),
    "infinite-end": (constants("step_s: [0.1, 0.2, .inf]"), 7, "a number or"),
    "two": (constants("step_s: [0.1, 0.2]"), 7, "a number or"),
    "upside-down": (constants("step_s: [0.3, 0.2, 0.1]"), 7, "not ordered"),
    "misspelt": (constants("stepp_s: 0.001"), 7, "did you mean `step_s`"),
    "milliseconds": (constants("step_s: 12"), 7, "at most 10"),
    "no-range": (constants("step_s: [1.0e-7, 0.001, 1]"), 7, "known to a factor"),
    "alone": (constants("decode_fixed_s: 0.01"), 7, "without `decode_per_sequence_s`"),
    "no-time": (constants("prefill_per_token_s: 0, prefill_per_square_s: 0"), 7, "zero together"),
    "shape-zero": (HEAD.replace("tp: 8", "tp: 0"), 6, "no shape"),
    "shape-text": (HEAD.replace("{tp: 8}", "tp8"), 6, "a mapping is wanted"),
    "nameless": (HEAD.replace("deepseek-ai/DeepSeek-R1", '""'), 4, "at least 1 character"),
    "kv-huge": (HEAD + "    memory: {kv_tokens: 99999999999}\n", 7, "less than or equal"),
    "kv-fraction": (HEAD + "    memory: {kv_tokens: 1.5e5}\n", 7, "a whole number"),
    "unknown-field": (HEAD + "    constant: {}\n", 7, "no such field"),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_mistake_is_found_at_its_place(name):
    text, line, says = BAD[name]
    outcome = read_calibration(CalibrationSource("c.yaml", text))
    assert outcome.value is None
    assert {d.code for d in outcome.diagnostics} == {"DGC206"}
    first = outcome.diagnostics[0]
    assert first.span is not None
    assert (first.span.file, first.span.line) == ("c.yaml", line)
    assert says in first.message
    assert all(len(d.message) < 400 for d in outcome.diagnostics)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"batch_slope"}))
@pytest.mark.parametrize("value", ["-1", "1e300", "-.inf"])
def test_no_constant_may_be_anything(name, value):
    outcome = read_calibration(CalibrationSource("c.yaml", constants(f"{name}: {value}")))
    assert outcome.value is None


def test_every_constant_has_bounds_that_its_priors_keep():
    assert set(BOUNDS) == set(NAMES)
    for accelerator in ("h200", "mi300x"):
        spec = resolved(service(R1), groups=(nodes(accelerator),))
        models, group = Models(spec, None), spec.groups[0]
        prior = models.constants(spec.services[0], group, TP8)
        for name, (least, most) in BOUNDS.items():
            given = getattr(prior, name)
            assert given is None or least <= given.low <= given.high <= most, name


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("name", sorted(set(NAMES) - {n for names in TOGETHER for n in names}))
def test_at_its_bounds_every_constant_gives_step_times_above_zero(name, end):
    entry = Entry(
        model="deepseek-ai/DeepSeek-R1", accelerator="h200", constants={name: float(BOUNDS[name][end])}
    )
    found = Calibration(version=1, provenance=Provenance(tool="x"), entries=(entry,))
    spec = resolved(service(R1), groups=(nodes("h200"),))
    models = Models(spec, found)
    engine = models.engine(spec.services[0], spec.groups[0], TP8)
    for times in (engine.best, engine.likely, engine.worst):
        assert 0 < times.decode(0.0, 0.0) < 1e9
        assert 0 < times.decode(512.0, 32768.0) < 1e9
        assert 0 < times.prefill(1.0, 1.0, 1.0) < 1e9


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (90_000_000, "the 90,000,000 KV tokens that the calibration file states"),
        (1_000, "by the 1,000 KV tokens that the calibration file states"),
    ],
)
def test_kv_tokens_that_no_memory_holds_or_no_sequence_fits_are_named(tokens, says):
    entry = Entry(model=R1, accelerator="h200", memory=MeasuredMemory(kv_tokens=tokens))
    found = Calibration(version=1, provenance=Provenance(tool="x"), entries=(entry,))
    spec = resolved(service(R1), groups=(nodes("h200"),))
    fit = Models(spec, found).memory(spec.services[0], spec.groups[0], Role.DECODE, shape=TP8)
    assert isinstance(fit, NoFit)
    assert says in str(fit)


def test_an_engine_with_more_room_than_the_facts_leave_has_no_negative_buffers():
    spec = resolved(service(R1), groups=(nodes("h200"),))
    plain = Models(spec, None).memory(spec.services[0], spec.groups[0], Role.DECODE, shape=TP8)
    assert not isinstance(plain, NoFit)
    tokens = int((plain.usable_bytes - plain.weights_bytes) * 1.02 / plain.kv_bytes_per_token)
    entry = Entry(model=R1, accelerator="h200", memory=MeasuredMemory(kv_tokens=tokens))
    found = Calibration(version=1, provenance=Provenance(tool="x"), entries=(entry,))
    fit = Models(spec, found).memory(spec.services[0], spec.groups[0], Role.DECODE, shape=TP8)
    assert not isinstance(fit, NoFit)
    assert 0 <= fit.overhead_low_bytes == fit.overhead_high_bytes < fit.kv_bytes_per_token
    assert 0.97 * tokens < fit.kv_tokens_low == fit.kv_tokens_high < tokens
