from __future__ import annotations

from dataclasses import replace

import pytest

from disaggc.perf.predict import predict
from disaggc.perf.sensitivity import sensitivities
from tests.perf.perf_cases import load, moreh


def explored(one, layouts, **options):
    found = sensitivities(one.models, one.service, layouts, latency_first=options.get("latency_first", False))
    return {s.quantity: s for s in found}


def figures(one, layout, **changes):
    """(tokens/s, E2E) with other traffic."""
    other = replace(one.service, classes=(load(**changes),))
    seen = predict(one.models, other, layout)
    return seen.total_tok_per_s.value, seen.classes[0].e2e.p50.value


def test_a_break_even_is_where_the_other_layout_takes_over():
    one = moreh(8192, 1024, 160, 2.0)
    layouts = [one.pd(1, 4), one.pd(2, 3)]
    rate = explored(one, layouts)["rate"]
    (found,) = rate.break_evens
    assert found.above
    assert found.better == 1
    assert found.value > rate.value
    traffic = {"isl": 8192, "osl": 1024, "concurrency": 160}
    below = [figures(one, layout, rate=found.value * 0.97, **traffic) for layout in layouts]
    above = [figures(one, layout, rate=found.value * 1.03, **traffic) for layout in layouts]
    # tokens decide, and where they are equal the latency
    assert below[0][0] > below[1][0] * 1.0005 or below[0][1] < below[1][1]
    assert above[1][0] > above[0][0] * 1.0005 or above[1][1] < above[0][1]


def test_an_effect_is_the_prediction_at_the_changed_value():
    one = moreh(1024, 8192, 480, 2.0)
    found = explored(one, [one.pd(1, 4)])["concurrency"]
    half = next(r for r in found.responses if r.factor == 0.5)
    now = figures(one, one.pd(1, 4), isl=1024, osl=8192, rate=2.0, concurrency=480)
    then = figures(one, one.pd(1, 4), isl=1024, osl=8192, rate=2.0, concurrency=240)
    assert half.total_tok_per_s == pytest.approx(then[0] / now[0])
    assert half.e2e_p50 == pytest.approx(then[1] / now[1])


def test_price_changes_cost_alone():
    one = moreh(1024, 8192, 480, 2.0)
    found = explored(one, [one.pd(1, 4), one.pd(2, 3)])["price"]
    assert [(r.factor, r.total_tok_per_s) for r in found.responses] == [(0.5, 1.0), (2.0, 1.0)]
    assert [r.tokens_per_cost for r in found.responses] == pytest.approx([2.0, 0.5])
    assert found.break_evens == ()


def test_lengths_beyond_the_context_limit_are_not_told():
    one = moreh(1024, 8192, 480, 2.0)
    found = explored(one, [one.pd(1, 4)])["output_tokens"]
    assert [r.factor for r in found.responses] == [0.5]
    assert [(u.factor, u.reason) for u in found.unanswered] == [
        (2.0, "requests would exceed the context limit of 16,384 tokens")
    ]


def test_a_class_beyond_the_context_limit_does_not_silence_everything():
    """It has a finding of its own; what other rates and caps do can be told all the same."""
    one = moreh(1024, 8192, 480, 2.0)
    limit = one.service.max_model_len
    long = load(isl=limit, osl=512, rate=0.1, name="long")
    service = replace(one.service, classes=(*one.service.classes, long))
    found = {s.quantity: s for s in sensitivities(one.models, service, [one.pd(1, 4)], latency_first=False)}
    for quantity in ("rate", "concurrency", "bandwidth", "price"):
        assert [r.factor for r in found[quantity].responses] == [0.5, 2.0], quantity
        assert found[quantity].unanswered == ()
    assert [r.factor for r in found["input_tokens"].responses] == [0.5]


def test_every_factor_is_answered_or_has_a_reason():
    one = moreh(1024, 8192, 480, 2.0)
    for found in explored(one, [one.pd(1, 4), one.colocated(5)]).values():
        told = [r.factor for r in found.responses] + [u.factor for u in found.unanswered]
        assert sorted(told) == [0.5, 2.0]
        assert all(u.reason for u in found.unanswered)


def test_progress_counts_the_quantities():
    one = moreh(1024, 8192, 480, 2.0)
    seen = []
    found = sensitivities(
        one.models,
        one.service,
        [one.pd(1, 4)],
        latency_first=False,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(i + 1, len(found)) for i in range(len(found))]


def test_the_network_matters_to_disaggregated_layouts_only():
    one = moreh(8192, 1024, 160, 2.0)
    assert "bandwidth" not in explored(one, [one.colocated(5)])
    found = explored(one, [one.pd(2, 3)])["bandwidth"]
    half, double = found.responses
    assert half.e2e_p50 >= 1 >= double.e2e_p50


def test_no_break_even_is_named_where_another_layout_is_ahead_already():
    one = moreh(8192, 1024, 160, 4.0)
    layouts = [one.pd(1, 4), one.pd(2, 3)]
    assert (
        explored(one, list(reversed(layouts)))["rate"].break_evens
        != explored(one, layouts)["rate"].break_evens
    )
    assert explored(one, layouts)["rate"].break_evens == ()
