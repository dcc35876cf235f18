from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.perf.calibration.least_squares import fit_relative

ROWS = [(1.0, float(b), float(b * s)) for b in (1, 8, 32, 128) for s in (256, 2048, 8192)]


def measured(coefficients, noise=0.0):
    draw = random.Random(3)  # noqa: S311 - a fixed design
    return [
        sum(c * x for c, x in zip(coefficients, r, strict=True)) * (1 + draw.uniform(-noise, noise))
        for r in ROWS
    ]


@given(
    st.tuples(*(st.floats(0, 10) for _ in range(3)))
    .filter(lambda c: sum(c) > 1e-3)
    .map(lambda c: (c[0] * 1e-2, c[1] * 1e-4, c[2] * 1e-8))
)
def test_exact_data_gives_exact_predictions(coefficients):
    wanted = measured(coefficients)
    if min(wanted) <= 0:
        return
    fit = fit_relative(ROWS, wanted)
    assert min(fit.coefficients) >= 0
    assert max(abs(e) for e in fit.errors) < 1e-6


def test_a_wild_run_does_not_move_the_fit():
    wanted = measured((0.01, 1e-4, 2e-8), noise=0.01)
    wanted[5] *= 3
    fit = fit_relative(ROWS, wanted)
    assert fit.coefficients[0] == pytest.approx(0.01, rel=0.1)
    assert fit.coefficients[2] == pytest.approx(2e-8, rel=0.1)


def test_left_out_errors_are_not_smaller_than_fitted_ones():
    fit = fit_relative(ROWS, measured((0.01, 1e-4, 2e-8), noise=0.1))
    assert sum(abs(e) for e in fit.left_out) >= sum(abs(e) for e in fit.errors)


def test_a_column_that_never_varies_is_not_pinned_down():
    rows = [(1.0, float(b), 500.0 * b) for b in (1, 2, 4, 8)]
    fit = fit_relative(rows, [0.01 + 1e-4 * r[1] + 1e-8 * r[2] for r in rows])
    assert max(fit.deviations[1:]) > 0.5
