"""What `disaggc smoke` makes of figures: how fast a transfer must be, and which counters may not rise."""

from __future__ import annotations

import pytest

from disaggc.catalog.load import load_catalog
from disaggc.ir.plan import KvLink
from disaggc.perf.priors import prior_constants
from disaggc.rollout.smoke_calls import CallError
from disaggc.rollout.smoke_losses import LOSSES, lost
from disaggc.rollout.smoke_metrics import Metrics, read_metrics
from disaggc.rollout.smoke_model import Finding
from disaggc.rollout.smoke_pairs import SETUP_S, bandwidth

LINK = KvLink(
    prefill="chat/prefill", decode="chat/decode", bytes_per_request=1e8, bandwidth=4e10, bandwidth_low=2e10,
    transport="rdma",
)  # fmt: skip


def judged(size: float, seconds: float, *, scale: float = 1.0, over: str = "rdma") -> Finding:
    delta = {"vllm:nixl_bytes_transferred_sum": size, "vllm:nixl_xfer_time_seconds_sum": seconds}
    return bandwidth("p -> d", LINK.model_copy(update={"transport": over}), delta=delta, scale=scale)


def test_as_fast_as_planned_passes_whatever_setup_takes():
    found = judged(4e7, 0.002)
    assert found.state == "pass"
    assert found.sentence == (
        "38.1 MiB in 2.0 ms (20.0 GB/s), set-up included; planned are at least 20.0 GB/s without it"
    )


def test_what_setup_may_explain_says_nothing_of_a_link_that_the_bytes_hardly_use():
    assert [judged(4e7, seconds).state for seconds in (0.0021, 0.0119, 0.0121)] == ["skip", "skip", "fail"]
    assert judged(4e7, 0.0039).sentence == (
        "38.1 MiB in 3.9 ms (10.3 GB/s): within 12.0 ms, which are 2.0 ms at the 20.0 GB/s planned at least and up "
        "to 10 ms of set-up; set-up may be most of it, so the link itself is not judged"
    )


def test_where_the_bytes_take_longer_than_setup_the_link_is_judged():
    assert [judged(4e8, seconds).state for seconds in (0.02, 0.0299, 0.0301)] == ["pass", "pass", "fail"]
    assert "within 30.0 ms, which are 20.0 ms at the 20.0 GB/s" in judged(4e8, 0.0299).sentence
    assert "more than 30.0 ms" in judged(4e8, 0.0301).sentence


def test_over_tcp_setup_may_take_longer():
    assert [judged(4e8, seconds, over="tcp").state for seconds in (0.0301, 0.0701)] == ["skip", "fail"]


def test_a_double_is_judged_by_its_own_clock():
    assert judged(4e8, 0.011).state == "pass"
    found = judged(4e8, 0.011, scale=10.0)
    assert found.state == "fail"
    assert "110.0 ms of the double's clock, 10 times as fast (3.6 GB/s): more than 30.0 ms" in found.sentence


def test_setup_is_that_of_the_models_priors():
    catalog = load_catalog()
    accelerator = catalog.accelerator("h200")
    worst = {
        "rdma" if fabric.rdma else "tcp": prior_constants(
            accelerator, fabric, crosses_nodes=False
        ).kv_setup_s.high
        for fabric in catalog.fabrics
    }
    assert {**worst, "link": max(worst.values())} == SETUP_S


def test_the_double_tells_its_clock():
    assert read_metrics("disaggc_sim_time_scale 10").time_scale == 10
    assert read_metrics("vllm:num_requests_running 0").time_scale == 1


def page(**counters: float) -> Metrics:
    return Metrics({f"vllm:{name}_total": value for name, value in counters.items()}, ())


@pytest.mark.parametrize("name", LOSSES)
def test_every_counter_of_lost_kv_fails_the_test(name):
    others = {"nixl_num_kv_expired_reqs": 0.0}
    before, after = page(**{**others, name: 3.0}), page(**{**others, name: 5.0})
    (found,) = lost({"chat/prefill/0": before}, {"chat/prefill/0": after})
    assert (found.state, found.figures) == ("fail", {name: 2.0})
    assert found.sentence == f"since the test began: 2 {LOSSES[name]} (vllm:{name})"


def test_earlier_losses_are_not_the_tests():
    seen = {"d": page(nixl_num_failed_transfers=7.0)}
    assert [one.state for one in lost(seen, seen)] == ["pass"]


def test_an_engine_without_counters_is_not_judged():
    seen = {"d": page(generation_tokens=7.0)}
    assert [one.state for one in lost(seen, seen)] == ["skip"]


def test_an_engine_that_is_gone_at_the_end_fails():
    (found,) = lost({"d": page(nixl_num_failed_transfers=0.0)}, {"d": CallError("gone")})
    assert (found.state, found.sentence) == ("fail", "gone")
