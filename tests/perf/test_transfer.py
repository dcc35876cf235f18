from __future__ import annotations

import csv
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.ir.plan import Shape
from disaggc.perf.events.load import Load
from disaggc.perf.events.setting import Front
from disaggc.perf.events.simulate import simulate
from disaggc.perf.predict import predict
from disaggc.perf.priors import prior_constants
from disaggc.perf.transfer import Endpoint, kv_path, transfer_time
from tests.perf.perf_cases import CATALOG, bench, load, nodes, service

R1 = "deepseek-ai/DeepSeek-R1"
GROUP = nodes("h200", gbit=200)


def path(shape_p, shape_d, *, fabric="infiniband", group=GROUP, same_node=False, model=R1):
    return kv_path(
        service(model),
        CATALOG.fabric(fabric),
        Endpoint(group, shape_p),
        decode=Endpoint(group, shape_d),
        same_node=same_node,
    )


def constants(fabric="infiniband"):
    return prior_constants(CATALOG.accelerator("h200"), CATALOG.fabric(fabric), crosses_nodes=False)


def test_bytes_are_the_models_cache_counted_once():
    assert path(Shape(tp=8), Shape(tp=8)).bytes_for(1024) == 70272 * 1024


def test_every_decode_rank_pulls_its_own_copy_of_a_latent_cache():
    wide, narrow = path(Shape(tp=8), Shape(tp=8)), path(Shape(tp=8), Shape(tp=1, dp=8, ep=8))
    assert wide.copies == 8
    assert narrow.copies == 1
    # eight cards carry eight copies in the time one card carries one
    one_card = 25e9
    assert wide.line_bytes_per_s / wide.copies == pytest.approx(one_card)
    assert narrow.line_bytes_per_s / narrow.copies == pytest.approx(one_card)


@pytest.mark.parametrize("prefill", [Shape(tp=8), Shape(tp=8, dcp=8), Shape(tp=4, dcp=4)])
def test_decode_ranks_that_share_a_latent_cache_pull_their_part_of_it_only(prefill):
    shared = path(prefill, Shape(tp=8, dcp=8))
    assert shared.copies == 1
    assert shared.line_bytes_per_s / shared.copies == pytest.approx(prefill.tp * 25e9)
    assert path(prefill, Shape(tp=8)).copies == 8  # a whole copy each, whatever prefill shares
    assert path(prefill, Shape(tp=8, dcp=2)).copies == 4


def test_the_narrower_side_decides():
    assert path(Shape(tp=2), Shape(tp=8)).line_bytes_per_s == pytest.approx(2 * 25e9)
    assert path(Shape(tp=8), Shape(tp=2)).line_bytes_per_s == pytest.approx(2 * 25e9)


def test_few_cards_are_shared_by_all_accelerators_of_a_node():
    assert path(Shape(tp=8), Shape(tp=8), group=nodes("h200", nics=1)).line_bytes_per_s == pytest.approx(25e9)


def test_terms_add_up_and_overlap_is_taken_off():
    whole = transfer_time(path(Shape(tp=8), Shape(tp=8)), constants(), 8192)
    assert sum(t.value for t in whole.terms) == pytest.approx(whole.value)
    hidden = transfer_time(path(Shape(tp=8), Shape(tp=8)), constants(), 8192, hidden_s=0.01)
    assert hidden.value == pytest.approx(whole.value - 0.01)
    assert transfer_time(path(Shape(tp=8), Shape(tp=8)), constants(), 8192, hidden_s=99).value == 0


def test_tcp_is_slower_and_less_certain():
    rdma, tcp = constants(), constants("tcp")
    there = path(Shape(tp=8), Shape(tp=8))
    over_tcp = path(Shape(tp=8), Shape(tp=8), fabric="tcp")
    fast, slow = transfer_time(there, rdma, 8192), transfer_time(over_tcp, tcp, 8192)
    assert over_tcp.transport == "tcp"
    assert slow.value > 3 * fast.value
    assert slow.high / slow.low > fast.high / fast.low


def test_a_link_inside_the_node_beats_the_network():
    inside = path(Shape(tp=4), Shape(tp=4), same_node=True)
    assert inside.transport == "link"
    assert inside.seconds(8192, constants().at("likely")) < path(Shape(tp=4), Shape(tp=4)).seconds(
        8192, constants().at("likely")
    )


def test_a_node_without_a_link_copies_through_the_host():
    inside = path(Shape(), Shape(), same_node=True, group=nodes("l40s"))
    found = transfer_time(inside, constants(), 8192)
    assert inside.transport == "link"
    moved = inside.bytes_for(8192)
    assert found.low < moved / 40e9 + 0.05
    assert found.high > moved / 0.5e9


@given(st.floats(1, 100_000), st.floats(1, 100_000))
def test_longer_prompts_never_move_faster(first, second):
    short, long = sorted((first, second))
    there = path(Shape(tp=8), Shape(tp=8))
    values = constants().at("likely")
    assert there.seconds(short, values) <= there.seconds(long, values)


def test_tcp_between_gpus_holds_what_was_measured():
    """1 GB took 1.8 s with UCX and 0.211 s with UCCL over a 100G network."""
    group = nodes("h200", nics=1, gbit=100, per_node=1)
    there = path(Shape(tp=1), Shape(tp=1), fabric="tcp", group=group)
    worst, best = (there.speed(constants("tcp").at(c)) for c in ("worst", "best"))
    assert worst < 1e9 / 1.8 < best
    assert worst < 1e9 / 0.211 < best


def test_measured_transfers_lie_inside_the_range(shared_data):
    """KV of Qwen3-235B between two 8-GPU nodes with 4 x 400G each, by one transfer at a time."""
    group = nodes("h200", nics=4, gbit=400)
    there = path(Shape(tp=8), Shape(tp=8), fabric="roce", group=group, model="Qwen/Qwen3-235B-A22B")
    inside = []
    with shared_data("data/measured/measured_dev.csv").open(newline="") as source:
        for row in csv.DictReader(source):
            if row["metric"] == "kv_transfer_time" and row["source"] == "mooncake_sglang":
                found = transfer_time(there, constants("roce"), float(row["isl"]))
                inside.append(found.low <= float(row["value"]) / 1000 <= found.high)
    assert len(inside) >= 6
    assert all(inside)


WRITES = {"type": "moriio"}
READS = {"type": "moriio", "options": {"read_mode": True}}


def layered(connector):
    one = bench(R1, GROUP, Shape(tp=8), load(isl=8192, osl=256, rate=0.2), connector=connector)
    layout = one.pd(1, 1)
    return one, predict(one.models, one.service, layout)


def test_a_layer_wise_transfer_moves_beside_the_prompt_but_for_its_last_layer():
    values = constants().at("likely")
    plain, wise = (replace(path(Shape(tp=8), Shape(tp=8)), layer_wise=w) for w in (False, True))
    moving = plain.bytes_for(8192) / plain.speed(values)
    setup = plain.latency_s + values.kv_setup_s
    assert plain.seconds(8192, values, beside_s=1.0) == pytest.approx(setup + moving)
    assert wise.seconds(8192, values) == pytest.approx(setup + moving)
    assert wise.seconds(8192, values, beside_s=moving / 4) == pytest.approx(setup + 0.75 * moving)
    assert wise.seconds(8192, values, beside_s=100.0) == pytest.approx(setup + moving / 61)


def test_only_a_connector_that_writes_layers_hides_the_transfer_in_the_first_token():
    (_, nixl), (_, reads), (_, writes) = (layered(c) for c in ({"type": "nixl"}, READS, WRITES))
    first = [p.classes[0].ttft.p50.value for p in (nixl, reads, writes)]
    assert first[0] == pytest.approx(first[1])
    case = writes.case
    values = case.times(case.prefill[0])[1].values
    moving = case.paths[0].bytes_for(8192) / case.paths[0].speed(values)
    assert first[2] == pytest.approx(first[0] - moving * (1 - 1 / 61), rel=1e-3)


def test_the_simulator_hides_as_much_of_a_layer_wise_transfer():
    one, writes = layered(WRITES)
    _, reads = layered(READS)
    gained = reads.classes[0].ttft.p50.value - writes.classes[0].ttft.p50.value
    offered = Load.bench(8192, 256, concurrency=1, requests=24)
    seen = [
        simulate(one.models, one.service, one.pd(1, 1), load=offered, front=Front(layer_wise=w))
        .classes[0]
        .ttft.p50
        for w in (False, True)
    ]
    assert seen[0] - seen[1] == pytest.approx(gained, rel=0.1)
