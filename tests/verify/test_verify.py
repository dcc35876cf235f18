"""A sound plan has no findings; every fact that is broken in it has one."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import disaggc.verify
from disaggc.ir.plan import DeploymentPlan
from disaggc.perf.memory import Fit
from disaggc.perf.models import Models
from disaggc.resolve.model import ResolvedSpec
from disaggc.verify import verify
from tests.solve.spec_cases import CONSTRAINTS, FIVE, plan, resolved

Tree = dict[str, Any]
MIXED = "qwen3-235b-mixed"


@cache
def sound(example: str = FIVE, *sets: str) -> tuple[DeploymentPlan, ResolvedSpec]:
    return plan(example, *sets)


def broken(change: Callable[[Tree], None], example: str = FIVE, *sets: str) -> set[str]:
    """Codes found after one change of the plan's data."""
    good, spec = sound(example, *sets)
    tree = good.model_dump(mode="json")
    change(tree)
    return {d.code for d in verify(DeploymentPlan.model_validate_json(_json(tree)), spec)}


def _json(tree: Tree) -> str:
    return json.dumps(tree)


def test_prefill_that_keeps_kv_for_a_slow_network_runs_fewer_sequences() -> None:
    """Its buffers are smaller for it than those of an engine that keeps nothing, and the plan is sound."""
    load = "services.chat.workload.reasoning."
    slow = (
        "cluster.fabric={type: tcp, speed_per_nic: 10Gbit}",
        f"{load}objectives={{}}",
        f"{load}concurrency=null",
    )
    good, spec = sound(FIVE, *slow, f"{load}input_tokens=8192", f"{load}output_tokens=100")
    prefill = next(p for p in good.services[0].pools if p.role == "prefill")
    models = Models.of(spec).value
    assert models is not None
    alone = models.memory(spec.services[0], spec.group(prefill.group), prefill.role, shape=prefill.shape)
    assert isinstance(alone, Fit)
    assert prefill.memory.sequences < alone.max_num_seqs
    assert verify(good, spec) == ()


def service(tree: Tree) -> Tree:
    return tree["services"][0]


def pool(tree: Tree, role: str) -> Tree:
    return next(p for p in service(tree)["pools"] if p["role"] == role)


def replica(tree: Tree, role: str, index: int = 0) -> Tree:
    return pool(tree, role)["replicas"][index]


@pytest.mark.parametrize(
    ("example", "sets"),
    [
        (FIVE, ()),
        (FIVE, (f"{CONSTRAINTS}mode=flexible",)),
        (FIVE, (f"{CONSTRAINTS}mode=auto",)),
        (FIVE, (f"{CONSTRAINTS}spare_replicas=1",)),
        ("gpt-oss-120b-single-node", ()),
        ("llama-70b-h100-k8s", ()),
        (MIXED, ()),
        ("two-services", ()),
        ("starter", ()),
        ("starter", ("services.chat.workload.rag.objectives.itl_p99=14ms",)),
    ],
)
def test_a_sound_plan_has_no_findings(example: str, sets: tuple[str, ...]) -> None:
    good, spec = sound(example, *sets)
    assert verify(good, spec) == ()


def swap_node(tree: Tree) -> None:
    replica(tree, "decode")["slots"][0]["node"] = replica(tree, "prefill")["slots"][0]["node"]


def unknown_node(tree: Tree) -> None:
    replica(tree, "decode")["slots"][0]["node"] = "gpu-99"


def foreign_plan_node(tree: Tree) -> None:
    tree["nodes"][0]["name"] = "gpu-99"


def larger_node(tree: Tree) -> None:
    tree["nodes"][0]["accelerators"] = 16


def other_accelerator(tree: Tree) -> None:
    tree["nodes"][0]["accelerator"] = "mi325x"


def other_address(tree: Tree) -> None:
    tree["nodes"][0]["address"] = "10.9.9.9"


def missing_device(tree: Tree) -> None:
    replica(tree, "decode")["slots"][0]["devices"].pop()


def device_twice(tree: Tree) -> None:
    replica(tree, "decode")["slots"][0]["devices"][1] = 0


def device_beyond(tree: Tree) -> None:
    replica(tree, "decode")["slots"][0]["devices"][7] = 8


def ranks_out_of_order(tree: Tree) -> None:
    replica(tree, "decode")["slots"][0]["rank"] = 1


def one_replica_less(tree: Tree) -> None:
    pool(tree, "decode")["replicas"].pop()


def no_prefill(tree: Tree) -> None:
    service(tree)["pools"] = [p for p in service(tree)["pools"] if p["role"] != "prefill"]


def smaller_shape(tree: Tree) -> None:
    pool(tree, "decode")["shape"]["tp"] = 4


def shape_not_allowed(tree: Tree) -> None:
    pool(tree, "decode")["shape"] = {"tp": 4, "pp": 1, "dp": 2, "ep": 8}


def other_group(tree: Tree) -> None:
    pool(tree, "decode")["group"] = "nowhere"


def lighter_weights(tree: Tree) -> None:
    pool(tree, "decode")["memory"]["weights"] *= 0.9


def more_memory(tree: Tree) -> None:
    pool(tree, "prefill")["memory"]["usable"] *= 1.1


def more_kv(tree: Tree) -> None:
    pool(tree, "decode")["memory"]["kv_tokens_high"] *= 2


def smaller_buffers(tree: Tree) -> None:
    pool(tree, "decode")["memory"]["overhead_high"] *= 0.9


def larger_buffers(tree: Tree) -> None:
    pool(tree, "decode")["memory"]["overhead_low"] *= 1.1


def more_sequences(tree: Tree) -> None:
    pool(tree, "decode")["memory"]["sequences"] += 1


def faster(tree: Tree) -> None:
    service(tree)["predicted"]["total_tok_per_s"]["value"] *= 1.01


def sooner(tree: Tree) -> None:
    service(tree)["predicted"]["classes"]["reasoning"]["ttft_ms"]["p90"]["high"] *= 0.9


def surer(tree: Tree) -> None:
    service(tree)["predicted"]["output_tok_per_s"]["basis"] = "measured"


def other_bottleneck(tree: Tree) -> None:
    service(tree)["predicted"]["bottleneck"] = "prefill"


def other_ratio(tree: Tree) -> None:
    service(tree)["ratio"] = {"prefill": 2, "decode": 3}


def other_nodes(tree: Tree) -> None:
    service(tree)["nodes"] = {"prefill": 2, "decode": 3}


def other_mode(tree: Tree) -> None:
    service(tree)["mode"] = "colocated"


def service_gone(tree: Tree) -> None:
    service(tree)["name"] = "other"


def same_ports(tree: Tree) -> None:
    proxy = service(tree)["proxy"]
    node = proxy["instances"][0]["node"]
    first = next(r for p in service(tree)["pools"] for r in p["replicas"] if r["slots"][0]["node"] == node)
    first["ports"]["http"] = proxy["port"]


def link_gone(tree: Tree) -> None:
    service(tree)["links"] = []


MUTATIONS = [
    (swap_node, "DGC334"),
    (unknown_node, "DGC342"),
    (foreign_plan_node, "DGC341"),
    (larger_node, "DGC341"),
    (other_accelerator, "DGC341"),
    (other_address, "DGC341"),
    (missing_device, "DGC334"),
    (device_twice, "DGC342"),
    (device_beyond, "DGC334"),
    (ranks_out_of_order, "DGC342"),
    (one_replica_less, "DGC541"),
    (no_prefill, "DGC460"),
    (smaller_shape, "DGC334"),
    (shape_not_allowed, "DGC542"),
    (other_group, "DGC343"),
    (lighter_weights, "DGC343"),
    (more_memory, "DGC343"),
    (more_kv, "DGC343"),
    (more_sequences, "DGC343"),
    (smaller_buffers, "DGC343"),
    (larger_buffers, "DGC343"),
    (faster, "DGC543"),
    (sooner, "DGC543"),
    (surer, "DGC543"),
    (other_bottleneck, "DGC543"),
    (other_ratio, "DGC541"),
    (other_nodes, "DGC541"),
    (other_mode, "DGC541"),
    (service_gone, "DGC540"),
    (same_ports, "DGC453"),
    (link_gone, "DGC460"),
]


@pytest.mark.parametrize(("change", "code"), MUTATIONS, ids=[change.__name__ for change, _ in MUTATIONS])
def test_every_broken_fact_is_found(change: Callable[[Tree], None], code: str) -> None:
    assert code in broken(change)


def test_two_vendors_may_not_pair() -> None:
    def mixed(tree: Tree) -> None:
        pool(tree, "decode")["vendor"] = "amd"

    assert {"DGC462", "DGC342"} <= broken(mixed, MIXED)


def test_objectives_that_do_not_hold_are_told_with_both_numbers() -> None:
    good, _ = sound()
    tighter = resolved(FIVE, "services.chat.workload.reasoning.objectives.itl_p99=10ms")
    found = [d for d in verify(good, tighter) if d.code == "DGC544"]
    assert found
    assert "10.0 ms allowed" in found[0].message
    assert found[0].path[-1] == "itl_p99"


def test_a_scenario_the_layout_does_not_hold_in_is_named() -> None:
    good, _ = sound("starter", "optimize=nodes")
    peak = resolved("starter", "optimize=nodes", "scenarios={rush: {services.chat.workload.rag.rate: 400/s}}")
    assert any("`rush`" in d.message for d in verify(good, peak) if d.code == "DGC544")


def test_constraints_are_held_against_the_plan() -> None:
    good, _ = sound()
    for change in (
        f"{CONSTRAINTS}max_nodes=4",
        f"{CONSTRAINTS}spare_replicas=1",
        f"{CONSTRAINTS}prefill.replicas=2",
    ):
        assert "DGC542" in {d.code for d in verify(good, resolved(FIVE, change))}, change


def test_verify_never_reads_the_solver() -> None:
    folder = Path(disaggc.verify.__file__).parent
    for module in folder.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("disaggc.solve") for name in names), module
