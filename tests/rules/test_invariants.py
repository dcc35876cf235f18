"""Plan rules hold on what the compiler writes and fail on every plan that their examples break."""

from __future__ import annotations

import pytest

from disaggc.diagnostics import Severity
from disaggc.resolve.owned import OWNED_PORTS
from disaggc.rules import check_plan, plan_rules
from disaggc.rules.invariants import dgc461_state_layout_unset
from disaggc.rules.rule import Edit, PlanRule
from disaggc.solve.lower.ports import FIRST, PER_DEVICE, PROXY_ADMIN
from tests.rules.compiled import ONE_TO_TWO, sound_plan
from tests.rules.edits import edited

BROKEN = [
    pytest.param(rule, edits, id=f"{rule.code}-{number}")
    for rule in plan_rules()
    for number, edits in enumerate(rule.fails)
]


@pytest.mark.parametrize("mode", ["disaggregated", "colocated", "flexible"])
def test_a_compiled_plan_breaks_nothing(mode: str):
    overlay = (
        ONE_TO_TWO if mode == "disaggregated" else f"services: {{chat: {{constraints: {{mode: {mode}}}}}}}"
    )
    plan, resolved = sound_plan(overlay)
    assert check_plan(plan, resolved) == ()
    assert check_plan(plan) == ()


@pytest.mark.parametrize(("rule", "edits"), BROKEN)
def test_a_broken_plan_is_caught(rule: PlanRule, edits: tuple[Edit, ...]):
    plan, resolved = sound_plan()
    found = check_plan(edited(plan, edits), resolved, (rule,))
    assert found
    assert {d.code for d in found} == {rule.code}
    assert all(d.severity is Severity.ERROR for d in found)
    assert all(d.path[:1] == ("services",) for d in found)


def test_every_plan_rule_has_an_example_or_needs_another_model():
    assert {rule.code for rule in plan_rules() if not rule.fails} == {"DGC461"}


def test_a_hybrid_model_needs_its_state_layout():
    plan, resolved = sound_plan(
        """
        services:
          chat:
            model: {id: Qwen/Qwen3-Next-80B-A3B-Instruct, weights: /models/next}
            constraints: {mode: disaggregated, prefill: {tp: [8]}, decode: {tp: [8]}}
        """
    )
    assert check_plan(plan, resolved) == ()
    broken = edited(
        plan, (Edit("services/chat/pools/decode/replicas/*/env/VLLM_SSM_CONV_STATE_LAYOUT", "SD"),)
    )
    assert check_plan(broken, resolved, (dgc461_state_layout_unset.RULE,))


def test_the_planner_stays_within_its_ports():
    widest = 72
    assert OWNED_PORTS.start <= PROXY_ADMIN
    assert OWNED_PORTS.stop >= FIRST + widest * PER_DEVICE
