from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.perf.calibration.least_squares import Believed, fit_relative

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


def test_columns_of_very_different_size_are_told_apart():
    """Beside squares of tokens a constant of one column is 1e-16 of another: that is no blind direction."""
    rows = [(1.0, float(n), float(n) ** 2) for n in (512, 2048, 8192, 16384)]
    fit = fit_relative(rows, [0.03 + 4e-5 * r[1] + 2e-9 * r[2] for r in rows], noise=0.03)
    assert max(fit.deviations) < 0.2


def test_a_belief_bounds_what_the_rows_do_not_see():
    rows = [(1.0, float(b), 500.0 * b) for b in (1, 2, 4, 8)]
    seen = [0.01 + 1e-4 * r[1] + 2e-8 * r[2] for r in rows]
    far = (1.0, 8.0, 8 * 8000.0)
    blind = fit_relative(rows, seen, noise=0.03)
    told = fit_relative(rows, seen, noise=0.03, believed=[Believed(far, 0.02, 0.3)])
    assert math.isinf(blind.doubt(far))
    assert told.doubt(far) < 0.35
    assert told.at(far) == pytest.approx(0.02, rel=0.1)
    assert told.at(rows[2]) == pytest.approx(seen[2], rel=0.02)


def test_a_noisier_row_counts_less():
    rows = [(1.0,), (1.0,)]
    assert fit_relative(rows, [1.0, 2.0], noise=[0.03, 0.3]).at((1.0,)) == pytest.approx(1.0, abs=0.05)
