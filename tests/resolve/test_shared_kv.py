"""Which engines may share KV among ranks (dcp), and which connectors move it: what vLLM's own sources say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disaggc.catalog.facts import Attention
from disaggc.ir.plan import Shape
from disaggc.resolve.pairing import pair_refusal, shape_refusal
from disaggc.resolve.shared_kv import blockwise_refusal, shared_kv_refusal
from tests.perf.perf_cases import CATALOG, model, service

R1 = "deepseek-ai/DeepSeek-R1"
GROUPED = "Qwen/Qwen3-235B-A22B"
WHOLE = Shape(tp=8, dcp=8)


def refusal(name, shape, accelerator, *, settings=None, attention=None, version=None):
    facts = model(name)
    one = service(facts if attention is None else replace(facts, attention=attention), settings=settings)
    one = one if version is None else replace(one, snapshot=replace(one.snapshot, version=version))
    return shared_kv_refusal(one, shape, part="decode", accelerator=CATALOG.accelerator(accelerator))


@pytest.mark.parametrize(
    ("name", "shape", "accelerator"),
    [
        (R1, WHOLE, "h200"),
        (R1, WHOLE, "mi300x"),
        (R1, Shape(tp=8, dcp=2), "h200"),
        ("deepseek-ai/DeepSeek-V3.2", WHOLE, "h200"),
        (GROUPED, Shape(tp=8, dcp=2), "h200"),
        ("openai/gpt-oss-120b", Shape(tp=8), "mi300x"),
    ],
)
def test_engines_that_start(name, shape, accelerator):
    assert refusal(name, shape, accelerator) is None


@pytest.mark.parametrize(
    ("name", "shape", "accelerator", "more", "says"),
    [
        (R1, Shape(tp=4, dcp=8), "h200", {}, "tp 4 cannot be divided"),
        (GROUPED, Shape(tp=8, dcp=4), "h200", {}, "with 4 KV heads dcp 4 needs tp 16"),
        (GROUPED, Shape(tp=8, dcp=2), "mi300x", {}, "only latents"),
        ("deepseek-ai/DeepSeek-V3.2", WHOLE, "mi300x", {}, "no sparse attention kernel"),
        ("openai/gpt-oss-120b", Shape(tp=32, dcp=2), "h200", {}, "sliding-window layers"),
        (R1, WHOLE, "h200", {"settings": {"attention-backend": "TRITON_ATTN"}}, "`attention-backend` TRITON_ATTN"),
        (R1, WHOLE, "h200", {"settings": {"enable-return-routed-experts": True}}, "return-routed-experts"),
        (R1, WHOLE, "h200", {"attention": Attention.HYBRID, "version": (0, 21, 0)}, "beside recurrent state"),
    ],
)  # fmt: skip
def test_engines_that_refuse_to_start(name, shape, accelerator, more, says):
    assert says in refusal(name, shape, accelerator, **more)


def test_no_attention_kernel_of_a_cpu_shares_kv():
    facts = replace(CATALOG.accelerator("h200"), vendor="cpu")
    assert "CPUs" in shared_kv_refusal(service(R1), WHOLE, part="decode", accelerator=facts)


@pytest.mark.parametrize("backend", ["FLASHMLA", "flashinfer_mla", "auto"])
def test_a_backend_that_shares_may_be_named(backend):
    assert refusal(R1, WHOLE, "h200", settings={"attention-backend": backend}) is None


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_nixl_moves_a_latent_cache_that_all_ranks_share(role):
    assert shape_refusal(service(R1), role, WHOLE) is None
    assert "dcp equal to tp, here dcp 4 with tp 8" in shape_refusal(service(R1), role, Shape(tp=8, dcp=4))
    assert "(MLA) only" in shape_refusal(service(GROUPED), role, Shape(tp=8, dcp=2))


@pytest.mark.parametrize("kind", ["nixl-push", "mooncake", "moriio"])
def test_no_other_connector_does(kind):
    one = service(R1, connector={"type": kind})
    assert shape_refusal(one, "decode", Shape(tp=8)) is None
    assert f"{kind} does not move KV" in shape_refusal(one, "decode", WHOLE)


def test_nixl_before_it_knew_of_shared_kv_does_not():
    one = service(R1)
    old = replace(one, snapshot=replace(one.snapshot, version=(0, 21, 0)))
    assert "NIXL of vLLM 0.21.0" in shape_refusal(old, "decode", WHOLE)


def test_drafts_are_verified_against_blocks_by_two_backends_only():
    drafts = {"method": "mtp", "tokens": 1, "acceptance": "70%"}
    assert "verify drafts" in shape_refusal(service(R1, speculative=drafts), "decode", WHOLE)
    named = service(R1, speculative=drafts, settings={"attention-backend": "TOKENSPEED_MLA"})
    assert shape_refusal(named, "decode", WHOLE) is None


@pytest.mark.parametrize(
    ("accelerator", "name", "backend", "reads"),
    [
        ("h200", R1, None, True),
        ("mi300x", R1, None, True),
        ("b200", R1, None, False),
        ("b200", R1, "CUTLASS_MLA", True),
        ("b200", R1, "auto", False),
        ("h200", R1, "flashinfer_mla", False),
        ("rtx-pro-6000", R1, None, True),
        ("b200", "deepseek-ai/DeepSeek-V3.2", None, True),  # sparse attention has backends of its own
    ],
)
def test_what_nixl_shares_by_blocks_is_not_read_by_single_tokens(accelerator, name, backend, reads):
    one = service(name, settings={} if backend is None else {"attention-backend": backend})
    facts = CATALOG.accelerator(accelerator)
    assert (blockwise_refusal(one, WHOLE, part="decode", accelerator=facts) is None) is reads
    assert blockwise_refusal(one, Shape(tp=8), part="decode", accelerator=facts) is None


@pytest.mark.parametrize(
    "prefill", [Shape(tp=8), Shape(tp=4), WHOLE, Shape(tp=4, dcp=4), Shape(tp=16, dcp=16), Shape(tp=16)]
)
def test_one_side_may_share_and_the_other_not(prefill):
    assert pair_refusal(service(R1), prefill, WHOLE) is None
    assert pair_refusal(service(R1), WHOLE, prefill) is None


def test_degrees_of_both_sides_divide_one_another():
    assert "dcp 8 and decode dcp 12" in pair_refusal(service(R1), WHOLE, Shape(tp=8, dcp=12))


def test_recurrent_state_needs_the_same_degree_on_both_sides():
    hybrid = service(replace(model(R1), attention=Attention.HYBRID))
    assert pair_refusal(hybrid, WHOLE, WHOLE) is None
    assert "equal dcp" in pair_refusal(hybrid, Shape(tp=8), WHOLE)
