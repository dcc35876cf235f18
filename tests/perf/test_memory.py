from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disaggc.catalog.sizing import absorbed_bytes_per_rank, weight_bytes_per_rank
from disaggc.ir.plan import Role, Shape
from disaggc.perf.memory import Fit, MemoryDemand, NoFit, bytes_per_sequence, fit
from disaggc.resolve.model import Lengths
from tests.effort import examples
from tests.perf.perf_cases import load, nodes, service

R1 = "deepseek-ai/DeepSeek-R1"
VARIED = load(isl=Lengths(4096, 3000, 9000, 12000, 1.0), osl=64, concurrency=1)


def sized(name, accelerator, shape, *loads, role=Role.DECODE, **options):
    demand = {k: options.pop(k) for k in ("rate", "handoff_s", "lease_s") if k in options}
    one = service(name, *loads, **options)
    return fit(one, nodes(accelerator), role, shape=shape, demand=MemoryDemand(one.classes, **demand))


def test_gpt_oss_on_one_h200_holds_the_tokens_that_vllm_reports():
    """1,630,790 KV tokens a prefill engine, TP1, prompts of 5,000 and answers of 250 tokens (llm-d guide)."""
    found = sized(
        "openai/gpt-oss-120b",
        "h200",
        Shape(),
        load(isl=5000, osl=250, rate=5),
        role=Role.PREFILL,
        max_model_len=131072,
    )
    assert found.kv_tokens_low < 1_630_790 < found.kv_tokens_high


def test_qwen3_on_two_h100_holds_what_the_guide_says_at_95_percent():
    """About 350k tokens at TP2 and 48k at TP1 (llm-d): figures without the utilisation they were made at."""
    traffic = load(isl=8192, osl=256, rate=1)
    one = sized("Qwen/Qwen3-32B", "h100-sxm", Shape(tp=1), traffic, utilisation=0.95, max_model_len=12288)
    two = sized("Qwen/Qwen3-32B", "h100-sxm", Shape(tp=2), traffic, utilisation=0.95, max_model_len=12288)
    assert one.kv_tokens_low < 48_000 < one.kv_tokens_high
    assert two.kv_tokens_low < 350_000 < two.kv_tokens_high


def test_the_parts_add_up_to_what_the_engine_may_take():
    found = sized(R1, "mi300x", Shape(tp=8), load(isl=1024, osl=8192, concurrency=480))
    model = service(R1).model
    assert found.usable_bytes == pytest.approx(0.92 * found.total_bytes)
    assert found.weights_bytes == weight_bytes_per_rank(model, Shape(tp=8)) + absorbed_bytes_per_rank(
        model, Shape(tp=8)
    )
    for overhead, tokens in (
        (found.overhead_low_bytes, found.kv_tokens_high),
        (found.overhead_high_bytes, found.kv_tokens_low),
    ):
        left = found.usable_bytes - found.weights_bytes - overhead
        assert tokens == math.floor(left / found.kv_bytes_per_token)
    assert found.kv_bytes_per_token == 70272


def test_weights_that_do_not_fit_are_named_with_both_numbers():
    found = sized(R1, "h100-sxm", Shape(tp=8), load(concurrency=1))
    assert isinstance(found, NoFit)
    assert str(found).startswith("weights ")
    assert "GiB exceed 73.3 GiB usable on h100-sxm at tp8" in str(found)


def test_a_context_that_does_not_fit_is_named_too():
    found = sized("Qwen/Qwen3-32B", "h100-sxm", Shape(), load(concurrency=1), max_model_len=131072)
    assert isinstance(found, NoFit)
    assert "the KV of one sequence of 131072 tokens" in str(found)


def test_attention_data_parallelism_gives_each_rank_its_own_pool():
    together = sized(R1, "h200", Shape(tp=8), load(isl=1024, osl=1024, concurrency=64))
    apart = sized(R1, "h200", Shape(tp=1, dp=8, ep=8), load(isl=1024, osl=1024, concurrency=64))
    assert together.ranks == 1
    assert apart.ranks == 8
    assert apart.replica_kv_tokens_low > 4 * together.replica_kv_tokens_low
    assert apart.replica_sequences == 8 * apart.max_num_seqs


def test_eight_ranks_that_share_a_latent_cache_hold_eight_times_the_tokens():
    """The same bytes less one more communicator (0.3 to 1 GiB), by 70,272 / 8 bytes a token."""
    traffic, options = load(isl=1024, osl=1024, concurrency=64), {"settings": {"max-num-seqs": 64}}
    copied = sized(R1, "h200", Shape(tp=8), traffic, **options)
    shared = sized(R1, "h200", Shape(tp=8, dcp=8), traffic, **options)
    assert shared.kv_bytes_per_token == 8784
    assert shared.weights_bytes == copied.weights_bytes
    left = copied.usable_bytes - copied.weights_bytes
    for name, communicator, overhead in (
        ("kv_tokens_high", 0.3, copied.overhead_low_bytes),
        ("kv_tokens_low", 1.0, copied.overhead_high_bytes),
    ):
        assert getattr(copied, name) == int((left - overhead) / 70272)
        assert getattr(shared, name) == pytest.approx((left - overhead - communicator * 2**30) / 8784, abs=1)
        assert 7.7 < getattr(shared, name) / getattr(copied, name) < 8


def test_shared_kv_lets_more_sequences_run():
    traffic = load(isl=16_000, osl=4_000, concurrency=1000)
    copied, shared = (
        sized(R1, "mi300x", Shape(tp=8, dcp=dcp), traffic, max_model_len=32768) for dcp in (1, 8)
    )
    assert 7 * copied.max_num_seqs < shared.max_num_seqs


def test_a_sliding_window_costs_nothing_beyond_its_width():
    one = service("openai/gpt-oss-120b", load(concurrency=1))
    each = bytes_per_sequence(one, Shape(), 20_000) - bytes_per_sequence(one, Shape(), 10_000)
    assert each == pytest.approx(36_864 * 10_000)
    assert bytes_per_sequence(one, Shape(), 100) == pytest.approx(73_728 * 100)


def test_leased_tokens_are_littles_law():
    found = sized(
        R1,
        "mi300x",
        Shape(tp=8),
        load(isl=4096, rate=1),
        role=Role.PREFILL,
        rate=3.0,
        handoff_s=0.5,
        lease_s=30,
    )
    assert found.leased_tokens == 3 * 4096 * 0.5
    assert found.lease_tail_tokens == 3 * 4096 * 30
    assert sized(R1, "mi300x", Shape(tp=8), load(rate=1), rate=3.0, handoff_s=0.5).leased_tokens == 0


def test_leased_kv_leaves_less_room_for_prompts():
    def seqs(rate):
        return sized(
            "Qwen/Qwen3-32B", "h100-sxm", Shape(tp=2), load(isl=8192, rate=1), role=Role.PREFILL, rate=rate,
            handoff_s=2.0, max_model_len=12288,
        ).max_num_seqs  # fmt: skip

    assert seqs(10.0) < seqs(0.0)


def test_varied_lengths_fit_fewer_sequences():
    steady = sized("Qwen/Qwen3-32B", "h100-sxm", Shape(tp=2), load(isl=4096, osl=64, concurrency=1))
    varied = sized(
        "Qwen/Qwen3-32B",
        "h100-sxm",
        Shape(tp=2),
        VARIED,
    )
    assert varied.sequences < steady.sequences
    assert steady.sequences * (4096 + 32) <= steady.kv_tokens_low


def test_every_default_is_pinned_and_the_users_setting_wins():
    plain = sized(R1, "mi300x", Shape(tp=8), load(concurrency=8))
    assert (plain.max_num_batched_tokens, plain.block_size) == (16384, 16)
    assert sized(R1, "h200", Shape(tp=8), load(concurrency=8)).block_size == 64
    assert sized(R1, "b200", Shape(tp=8), load(concurrency=8)).block_size == 128
    given = sized(
        R1, "mi300x", Shape(tp=8), load(concurrency=8),
        settings={
            "max-num-seqs": 32, "max-num-batched-tokens": 4096, "block-size": 32, "max-cudagraph-capture-size": 40,
        },
    )  # fmt: skip
    assert (given.max_num_seqs, given.max_num_batched_tokens) == (32, 4096)
    assert (given.block_size, given.capture_size) == (32, 40)


def test_graphs_cover_every_batch_the_engine_may_run():
    for seqs in (1, 3, 17, 100, 249, 300):
        found = sized(R1, "h200", Shape(tp=8), load(concurrency=8), settings={"max-num-seqs": seqs})
        assert found.capture_size >= min(found.max_num_seqs, 512)
        assert found.capture_size <= 512
        assert found.capture_size % 16 == 0 or found.capture_size < 256


@settings(max_examples=examples(60))
@given(
    st.sampled_from(["openai/gpt-oss-120b", "Qwen/Qwen3-32B", R1, "meta-llama/Llama-3.1-8B"]),
    st.sampled_from(["h100-sxm", "h200", "mi300x", "b200"]),
    st.sampled_from([Shape(), Shape(tp=2), Shape(tp=4), Shape(tp=8), Shape(tp=4, pp=2)]),
    st.floats(0.5, 0.9),
)
def test_more_memory_never_makes_what_fitted_not_fit(name, accelerator, shape, share):
    one = service(name, load(concurrency=8))
    less, more = (
        fit(
            replace(one, utilisation=u),
            nodes(accelerator),
            Role.DECODE,
            shape=shape,
            demand=MemoryDemand(one.classes),
        )
        for u in (share, share + 0.05)
    )
    if isinstance(less, Fit):
        assert isinstance(more, Fit)
        assert more.kv_tokens_low >= less.kv_tokens_low
        assert more.max_num_seqs >= less.max_num_seqs
        assert less.overhead_low_bytes < less.overhead_high_bytes
        assert less.kv_tokens_low <= less.kv_tokens_high
