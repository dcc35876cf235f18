"""No rule falls over what a user may write: any value under any flag, variable, option or degree."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from disaggc.catalog.load import load_catalog
from disaggc.diagnostics import Severity
from disaggc.resolve.owned import OWNED_CONNECTOR_OPTIONS, OWNED_ENV, OWNED_FLAGS
from disaggc.rules import check_plan, known_codes
from disaggc.rules.rule import Edit
from tests.effort import examples
from tests.rules.compiled import sound_plan
from tests.rules.edits import edited
from tests.rules.marked import findings

_SNAPSHOT = load_catalog().engine("0.33.0").value
assert _SNAPSHOT is not None
_OPTIONS = sorted(
    {key for c in _SNAPSHOT.connectors.values() for key in c.option_keys} | set(OWNED_CONNECTOR_OPTIONS)
)
_FLAGS = sorted(
    set(_SNAPSHOT.flags)
    | set(OWNED_FLAGS)
    | {"no-enable-prefix-caching", "tp", "swap-space", "max_model_len"}
)
_ENV = sorted(
    _SNAPSHOT.env_names | set(OWNED_ENV) | {"UCX_TLS", "PYTORCH_ALLOC_CONF", "HF_TOKEN", "VLLM_LOGING_LEVEL"}
)

scalars = st.one_of(
    st.booleans(),
    st.integers(-10, 10**9),
    st.floats(-10, 10, allow_nan=False),
    st.sampled_from(
        ["fp8", "auto", "", "8k", "DS", "expandable_segments:True", "^rc", "tcp", "pplx", "\u202e"]
    ),
    st.text("abc:,{}%\n", max_size=12),
)
values = st.one_of(
    scalars,
    st.none(),
    st.lists(scalars, max_size=2),
    st.dictionaries(st.text("abc", min_size=1), scalars, max_size=2),
)
settings_maps = st.dictionaries(st.sampled_from(_FLAGS), values, max_size=4)
env_maps = st.dictionaries(
    st.sampled_from(_ENV),
    st.one_of(st.text("abcTrue1:,_^/", max_size=10), st.just({"secret": "x"})),
    max_size=4,
)
degrees = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 16, 64, 1024]), min_size=1, max_size=2)
choices = st.fixed_dictionaries(
    {},
    optional={
        "tp": degrees,
        "pp": degrees,
        "dp": degrees,
        "dcp": degrees,
        "expert_parallel": st.booleans(),
        "replicas": st.integers(0, 5),
    },
)
MODELS = ["meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-R1", "openai/gpt-oss-120b", "Qwen/Qwen3-235B-A22B"]
durations = st.sampled_from(["0s", "1ms", "5s", "10min", "3d"])


@st.composite
def overlays(draw: st.DrawFn) -> str:
    service: dict[str, Any] = {
        "model": {"id": draw(st.sampled_from(MODELS))},
        "engine": {
            "vllm": draw(st.sampled_from(["0.33.0", "0.21.0", "0.27.1", "0.33.0rc1"])),
            "settings": draw(settings_maps),
            "env": draw(env_maps),
            "prefill": {"settings": draw(settings_maps), "env": draw(env_maps)},
            "decode": {"settings": draw(settings_maps), "env": draw(env_maps)},
            "connector": {
                "type": draw(st.sampled_from(["nixl", "nixl-push", "mooncake", "moriio"])),
                "lease": draw(st.one_of(st.just("auto"), durations)),
                "options": draw(st.dictionaries(st.sampled_from(_OPTIONS), values, max_size=3)),
            },
        },
        "constraints": {
            "mode": draw(st.sampled_from(["auto", "disaggregated", "flexible"])),
            "prefill": draw(choices),
            "decode": draw(choices),
            "colocated": draw(choices),
        },
        "proxy": {"port": draw(st.integers(1, 65535)), "replicas": draw(st.integers(1, 5))},
        "workload": {
            "talk": {
                "prefix_hit": draw(st.sampled_from([0, 0.5, 1])),
                "objectives": {
                    "ttft_p90": draw(durations),
                    "itl_p99": draw(durations),
                    "e2e_p50": draw(durations),
                },
            }
        },
    }
    fabric = {"type": draw(st.sampled_from(["infiniband", "roce", "efa", "tcp"]))}
    accelerator = {
        "type": draw(st.sampled_from(["h100-sxm", "mi300x", "a100-80g", "l4", "cpu"])),
        "per_node": 8,
    }
    target = draw(st.sampled_from(["systemd", "compose", "kubernetes"]))
    cluster = {"fabric": fabric, "nodes": {"h100": {"accelerator": accelerator}}}
    return json.dumps({"cluster": cluster, "services": {"chat": service}, "target": target})


@settings(max_examples=examples(80))
@given(overlays())
def test_no_rule_crashes_and_every_finding_has_a_code_and_a_place(overlay: str):
    found, resolved = findings(overlay)
    event("checked" if resolved is not None else "refused earlier")
    known = {code.id for code in known_codes()}
    for d in found:
        assert d.code != "DGC190", d.message
        assert d.code in known
        assert d.span is not None, d


broken_texts = st.sampled_from(["", "x", "-1", "{}", "[1]", '{"kv_role": 3}', "1e400", "nan", "\u202e"])


@settings(max_examples=examples(40))
@given(st.data())
def test_no_plan_rule_crashes_on_a_plan_with_odd_values(data: st.DataObject):
    plan, resolved = sound_plan()
    replica = plan.services[0].pools[0].replicas[0]
    flags = data.draw(st.lists(st.sampled_from([a.flag for a in replica.arguments]), unique=True, max_size=3))
    names = data.draw(st.lists(st.sampled_from([v.name for v in replica.env]), unique=True, max_size=3))
    at = "services/chat/pools/0/replicas/0"
    edits = [Edit(f"{at}/arguments/{flag}", data.draw(broken_texts)) for flag in flags]
    edits += [Edit(f"{at}/env/{name}", data.draw(broken_texts)) for name in names]
    for d in check_plan(edited(plan, edits), resolved):
        assert d.code != "DGC190", d.message
        assert d.severity is Severity.ERROR
