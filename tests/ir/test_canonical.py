from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.ir.canonical import (
    UnreadablePlanError,
    canonical_json,
    digest,
    fingerprint,
    read_saved_plan,
    saved_plan_text,
)
from disaggc.ir.plan import Overcommit, Shape
from tests.emit.plans import PLANS, five_nodes

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", sorted(PLANS))
def test_saved_plan_reads_back(name):
    plan = PLANS[name]()
    again = read_saved_plan(saved_plan_text(plan, "systemd"))
    assert fingerprint(again) == fingerprint(plan)
    assert saved_plan_text(again, "systemd") == saved_plan_text(plan, "systemd")


def test_fingerprint_ignores_how_the_answer_was_found():
    plan = five_nodes()
    other = plan.model_copy(
        update={"solver": plan.solver.model_copy(update={"wall_s": 9.0, "status": "locked"})}
    )
    assert fingerprint(other) == fingerprint(plan)


def test_fingerprint_sees_every_other_field():
    plan = five_nodes()
    seen = {fingerprint(plan)}
    for change in (
        {"fabric": "roce"},
        {"allow_tcp": True},
        {"optimize": "cost"},
        {"nodes": plan.nodes[:-1]},
        {"provenance": plan.provenance.model_copy(update={"catalog": "sha256:0"})},
        {"rollout": plan.rollout.model_copy(update={"drain_s": 1})},
    ):
        seen.add(fingerprint(plan.model_copy(update=change)))
    assert len(seen) == 7


def test_a_plan_without_shared_kv_has_the_bytes_it_had_before_there_was_any():
    text = saved_plan_text(five_nodes(), "systemd")
    assert '"dcp"' not in text
    assert all(pool.shape.dcp == 1 for s in read_saved_plan(text).services for pool in s.pools)
    shape = Shape(tp=8, dcp=8)
    assert shape.model_dump() == {"tp": 8, "pp": 1, "dp": 1, "ep": 1, "dcp": 8}
    assert Shape.model_validate(shape.model_dump()) == shape


def test_edited_plan_is_refused():
    document = json.loads(saved_plan_text(five_nodes(), "systemd"))
    document["plan"]["fabric"] = "tcp"
    with pytest.raises(UnreadablePlanError, match="changed after it was saved"):
        read_saved_plan(json.dumps(document))


def test_a_plan_from_before_a_field_was_added_is_read_and_still_guarded():
    document = json.loads(saved_plan_text(five_nodes(), "systemd"))
    for service in document["plan"]["services"]:
        del service["proxy"]["overcommit"]
    del document["plan"]["provenance"]["step_times"]
    body = {name: part for name, part in document["plan"].items() if name != "solver"}
    document["fingerprint"] = digest(canonical_json(body))
    again = read_saved_plan(json.dumps(document))
    assert again.services[0].proxy.overcommit == Overcommit()
    document["plan"]["fabric"] = "tcp"
    with pytest.raises(UnreadablePlanError, match="changed after it was saved"):
        read_saved_plan(json.dumps(document))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("[]", "not a saved plan"),
        ('{"schema": "disaggc.plan/v1"}', "not a saved plan"),
        ('{"schema": "disaggc.saved-plan/v1"}', "has no `plan`"),
        ('{"schema": "disaggc.saved-plan/v1", "plan": {"version": 2}}', r"plan\.version"),
    ],
)
def test_other_files_are_refused(text, says):
    with pytest.raises(UnreadablePlanError, match=says):
        read_saved_plan(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_canonical_form_is_stable_and_ascii(value):
    text = canonical_json(value)
    assert text.isascii()
    assert canonical_json(json.loads(text)) == text


@given(st.floats(min_value=1e-6, max_value=1e12), st.integers(min_value=-3, max_value=3))
def test_last_bits_do_not_matter(value, steps):
    nudged = value
    for _ in range(abs(steps)):
        nudged = math.nextafter(nudged, math.inf if steps > 0 else -math.inf)
    first, second = (float(canonical_json(x)) for x in (value, nudged))
    # A nudge may cross a rounding border; then the two differ by one step of the ninth digit and no more.
    assert first == second or math.isclose(first, second, rel_tol=1.1e-8)
    assert math.isclose(first, value, rel_tol=5.1e-9)


def test_not_a_number_is_a_bug():
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            canonical_json({"x": value})
    with pytest.raises(TypeError):
        canonical_json({"x": object()})


def test_fingerprint_does_not_depend_on_the_hash_seed():
    code = (
        "from tests.emit.plans import five_nodes\n"
        "from disaggc.ir.canonical import fingerprint\n"
        "print(fingerprint(five_nodes()))"
    )
    prints = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(prints) == 1
