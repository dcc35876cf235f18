from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.ir.plan import Shape
from disaggc.perf.aiconfigurator import informed
from disaggc.perf.engine_model import EngineModel
from disaggc.perf.estimate import Basis
from disaggc.perf.events import Load, simulate
from disaggc.perf.events.curve import Curve
from disaggc.perf.predict import predict
from disaggc.perf.step_table import StepTable
from tests.perf.perf_cases import Bench, bench, load, nodes

BATCHES, CONTEXTS = (1, 4, 16, 64), (512, 4096, 16384)
PROMPTS = ((1, 256), (1, 2048), (4, 2048), (1, 8192), (1, 32768))


def table(level=lambda batch: 0.005 + 2e-5 * batch) -> StepTable:
    """Exactly linear in the context, a prompt's cost exactly quadratic."""
    decode = {(b, c): level(b) + 3e-8 * b * c for b in BATCHES for c in CONTEXTS}
    prefill = {(n, each): 0.004 + 3e-5 * n * each + 2e-10 * n * each**2 for n, each in PROMPTS}
    return StepTable.of(decode, prefill, source="made up")


def test_a_table_gives_back_what_was_measured():
    found = table()
    assert found.token_s == pytest.approx(3e-8, rel=1e-4)
    assert found.prefill_fixed_s == pytest.approx(0.004, rel=1e-3)
    assert found.prefill_token_s == pytest.approx(3e-5, rel=1e-3)
    assert found.prefill_square_s == pytest.approx(2e-10, rel=1e-3)
    for batch in BATCHES:
        assert found.decode(batch, 2000) == pytest.approx(
            0.005 + 2e-5 * batch + 3e-8 * batch * 2000, rel=1e-4
        )


def test_between_batches_it_is_a_straight_line_and_beyond_the_last_that_line_goes_on():
    found = table(lambda batch: 0.005 + 1e-4 * batch**0.5)
    assert found.decode(10, 0) == pytest.approx((found.decode(4, 0) + found.decode(16, 0)) / 2)
    slope = (found.decode(64, 0) - found.decode(16, 0)) / 48
    assert found.decode(128, 0) == pytest.approx(found.decode(64, 0) + 64 * slope)
    assert found.decode(0.5, 0) == found.decode(1, 0)


def test_a_step_that_was_measured_shorter_at_a_larger_batch_is_evened_out():
    found = table(lambda batch: {1: 0.040, 4: 0.028, 16: 0.030, 64: 0.034}[batch])
    assert found.fixed_s[0] == found.fixed_s[1] == pytest.approx(0.034, rel=0.2)
    assert list(found.fixed_s) == sorted(found.fixed_s)


@given(st.floats(1, 2000), st.floats(1, 2000), st.floats(0, 1e5))
def test_a_larger_batch_is_never_faster(first, second, context):
    low, high = sorted((first, second))
    found = table(lambda batch: {1: 0.040, 4: 0.028, 16: 0.030, 64: 0.034}[batch])
    assert found.decode(low, context) <= found.decode(high, context) * (1 + 1e-12)


def tabled(given: StepTable) -> Bench:
    """A bench whose engine rests on a table."""
    one = bench("Qwen/Qwen3-32B", nodes("h100-sxm", count=2), Shape(tp=2), load(concurrency=64))
    models, group, shape = one.models, one.group, one.shape
    plain = models.engine(one.service, group, shape)
    models._engines[one.service.name, group.name, shape] = EngineModel(
        plain.work, informed(plain.constants, "made up"), given
    )
    return one


def test_step_times_of_a_table_stand_behind_the_same_interface():
    one = tabled(table())
    engine = one.models.engine(one.service, one.group, one.shape)
    step = engine.decode_step(16, 16 * 2000)
    assert step.value == pytest.approx(table().decode(16, 2000))
    assert step.low < step.value < step.high
    assert step.basis is Basis.TABLES
    assert sum(term.value for term in step.terms) == pytest.approx(step.value)
    assert engine.prefill_time(2048, 2048**2).value == pytest.approx(
        0.004 + 3e-5 * 2048 + 2e-10 * 2048**2, rel=1e-3
    )
    fixed, slope = Curve(engine.likely, 1.0).line(16, 1000)
    assert fixed + slope * 2000 == pytest.approx(table().decode(16, 2000))


def test_a_slower_table_is_a_slower_layout_in_the_closed_form_and_in_the_simulator():
    outputs = []
    for factor in (1.0, 2.0):
        one = tabled(table(lambda batch, f=factor: f * (0.01 + 2e-5 * batch)))
        layout = one.colocated(2)
        said = predict(one.models, one.service, layout)
        ran = simulate(one.models, one.service, layout, load=Load.of_service(one.service, 400))
        outputs.append((said.output_tok_per_s.value, ran.whole.output_tok_per_s))
    assert outputs[1][0] < 0.75 * outputs[0][0]
    assert outputs[1][1] < 0.75 * outputs[0][1]
