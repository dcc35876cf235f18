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
from tests.rules.marked import findings

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


AMD = "cluster: {nodes: {h100: {accelerator: {type: mi300x, per_node: 8}}}}"
R1 = "model: {id: deepseek-ai/DeepSeek-R1, weights: /models/r1}"
LAYOUTS = {
    "mooncake": "services: {chat: {engine: {connector: {type: mooncake, options: {device_name: mlx5_0}}}}}",
    "push": "services: {chat: {engine: {connector: {type: nixl-push}}}}",
    "moriio": f"{AMD}\nservices: {{chat: {{{R1}, engine: {{connector: {{type: moriio}}}}}}}}",
    "efa": "cluster: {fabric: {type: efa}}",
    "tcp": "cluster: {fabric: {type: tcp, allow_tcp: true}}",
    "before leases": "services: {chat: {engine: {vllm: 0.21.0}}}",
    "pipeline and experts over nodes": f"""
        cluster: {{nodes: {{h100: {{hosts: {{gpu-04: 10.0.0.4}}}}}}}}
        services:
          chat:
            {R1}
            constraints: {{prefill: {{tp: [8], pp: [2]}}, decode: {{tp: [1], dp: [16], expert_parallel: true}}}}
    """,
    "shared kv": f"""
        services:
          chat:
            {R1.replace("DeepSeek-R1", "DeepSeek-V2-Lite")}
            constraints: {{prefill: {{tp: [4, 8]}}, decode: {{tp: [8], dcp: [8]}}}}
    """,
    "sliding window": "services: {chat: {model: {id: openai/gpt-oss-120b, weights: /models/oss}}}",
    "speculation": "services: {chat: {speculative: {method: eagle3, tokens: 3, acceptance: 60%, model: org/draft}}}",
    "two proxies": "services: {chat: {proxy: {replicas: 2, policy: power-of-two}}}",
    "user's transports": "services: {chat: {engine: {env: {UCX_TLS: 'rc,cuda_copy,cuda_ipc,sm,self'}}}}",
    "user's flags": """
        services:
          chat:
            engine:
              settings: {kv-cache-dtype: fp8, block-size: 32, reasoning-parser: qwen3, no-enable-prefix-caching: true}
              prefill: {settings: {stream-interval: 4}}
    """,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_connector_fabric_and_shape_compiles_to_a_plan_that_breaks_nothing(layout: str):
    found, _ = findings(LAYOUTS[layout])
    assert not [d for d in found if d.severity is Severity.ERROR]
    plan, resolved = sound_plan(LAYOUTS[layout], "disaggregated")
    assert plan.services[0].ratio is not None
    assert check_plan(plan, resolved) == ()


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
