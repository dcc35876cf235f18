from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.ir.plan import Shape
from disaggc.perf.constants import HIGHER_IS_BETTER, NAMES, Range, latin_draws
from disaggc.perf.estimate import Basis
from disaggc.perf.models import Models
from disaggc.perf.priors import prior_constants
from tests.perf.perf_cases import CATALOG, bench, load, nodes, resolved, service

R1 = "deepseek-ai/DeepSeek-R1"


def priors(accelerator="h200", fabric="infiniband"):
    return prior_constants(CATALOG.accelerator(accelerator), CATALOG.fabric(fabric), crosses_nodes=False)


def test_every_share_and_speed_is_better_when_higher_and_every_time_when_lower():
    for name in NAMES:
        is_share = name.endswith(("_eff", "_bytes_per_s"))
        assert (name in HIGHER_IS_BETTER) is is_share, name


@pytest.mark.parametrize("accelerator", CATALOG.accelerator_ids)
@pytest.mark.parametrize("fabric", ["infiniband", "tcp"])
def test_priors_of_every_accelerator_are_ordered_and_say_where_they_come_from(accelerator, fabric):
    constants = priors(accelerator, fabric)
    for name in NAMES:
        found = getattr(constants, name)
        assert found is None or found.low <= found.mid <= found.high, name
        if name.endswith("_eff"):
            assert found.high <= 1, name
    assert constants.basis is Basis.PRIOR
    assert constants.source
    assert constants.kappa.mid == 1


def test_the_corners_take_every_constant_to_its_own_good_or_bad_end():
    constants = priors()
    worst, likely, best = (constants.at(c) for c in ("worst", "likely", "best"))
    assert worst.memory_eff == pytest.approx(constants.memory_eff.low)
    assert best.memory_eff == pytest.approx(constants.memory_eff.high)
    assert worst.step_s == pytest.approx(constants.step_s.high)
    assert best.step_s == pytest.approx(constants.step_s.low)
    assert likely.step_s == constants.step_s.mid
    assert worst.batch_slope == best.batch_slope == 0


@given(st.floats(-3, 3), st.floats(-3, 3))
def test_a_higher_score_never_gives_a_lower_value(first, second):
    low, high = sorted((first, second))
    for found in (Range(0.2, 0.5, 0.9), Range(-0.1, 0.0, 0.2), Range(1, 1, 1)):
        assert found.quantile(low) <= found.quantile(high)


def test_draws_hit_each_stratum_of_each_constant_once_and_never_change():
    draws = latin_draws(16)
    assert draws == latin_draws(16)
    for name in NAMES:
        shares = sorted(0.5 * (1 + math.erf(d[name] / math.sqrt(2))) for d in draws)
        assert shares == pytest.approx([(i + 0.5) / 16 for i in range(16)])


CALIBRATION = """
version: 1
provenance: {tool: disaggc calibrate, created: "2026-01-01", sources: [run.json]}
entries:
  - model: deepseek-ai/DeepSeek-R1
    accelerator: mi300x
    shape: {tp: 8}
    constants: {memory_eff: [0.4, 0.5, 0.6], kappa: 1.2}
  - model: deepseek-ai/DeepSeek-R1
    accelerator: h200
    basis: measured
    constants: {step_s: 0.002}
"""


def test_a_calibration_file_replaces_what_it_names_and_is_carried_elsewhere():
    group = nodes("mi300x")
    one = bench(R1, group, Shape(tp=8), load(concurrency=8), calibration=CALIBRATION)
    found = one.models.constants(one.service, group, Shape(tp=8))
    assert (found.memory_eff.low, found.memory_eff.mid, found.memory_eff.high) == (0.4, 0.5, 0.6)
    assert found.kappa.mid == 1.2
    assert found.basis is Basis.CALIBRATED
    assert found.step_s == priors("mi300x").step_s
    other = one.models.constants(one.service, group, Shape(tp=4))
    assert other.basis is Basis.CARRIED
    assert other.memory_eff.mid == priors("mi300x").memory_eff.mid
    assert other.step_miss.mid > 1
    assert other.kappa.mid == 1.2


def test_a_measured_entry_without_a_shape_holds_for_every_shape():
    group = nodes("h200")
    one = bench(R1, group, Shape(tp=8), load(concurrency=8), calibration=CALIBRATION)
    for shape in (Shape(tp=8), Shape(tp=4, dp=2, ep=8)):
        found = one.models.constants(one.service, group, shape)
        assert found.basis is Basis.MEASURED
        assert found.step_s.mid == 0.002


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("version: 2", "version"),
        ("a: [", "cannot be read"),
        ("version: 1\nprovenance: {tool: x}\nentries: 3", "entries"),
        (CALIBRATION.replace("memory_eff", "memory_efficiency"), "`memory_efficiency` is not a constant"),
        (CALIBRATION.replace("[0.4, 0.5, 0.6]", "[0.6, 0.5, 0.4]"), "not ordered"),
        (CALIBRATION.replace("1.2", "-1.2"), "at least 0.01"),
        ("", "the file is empty"),
    ],
)
def test_an_unusable_calibration_file_is_one_clear_finding(text, says):
    spec = resolved(service(R1), groups=(nodes("h200"),), calibration=text)
    built = Models.of(spec)
    assert built.value is None
    assert {d.code for d in built.diagnostics} == {"DGC206"}
    assert any(says in d.message for d in built.diagnostics), built.diagnostics
