"""What one prefill and one decode engine do together: KV moves, fast enough, undamaged, and is freed."""

from __future__ import annotations

import time
from collections.abc import Mapping

from disaggc.ir.plan import KvLink
from disaggc.rollout.smoke_calls import ASK_REMOTE_DECODE, Caller, CallError
from disaggc.rollout.smoke_model import Finding, Pair, Subject, Target, judged, skipped
from disaggc.rollout.smoke_use import grown, settles
from disaggc.units import format_bytes, format_speed

GENERATED = 8
"""Tokens of a greedy answer that are compared."""
MOVED_SHARE = 0.9
"""Least part of a prompt's KV, by the plan's bytes per token, that must arrive."""
SETUP_S = {"rdma": 0.01, "tcp": 0.05, "link": 0.05}
"""Most that setting one transfer up may take, by what it rides on: the cautious ends of the model's priors. A link
inside a node may belong to a cluster of either fabric."""


async def pair(subject: Subject, caller: Caller, both: Pair) -> list[Finding]:
    """One prefill hands KV to one decode: it arrives, fast enough, and the tokens are those of a single engine."""
    prefill, decode = both
    name = f"{prefill.address} -> {decode.address}"
    try:
        prompt = await caller.tokens(decode.url, subject.prompt_tokens)
        before = await caller.metrics(decode.url)
        first = await caller.complete(prefill.url, prompt, most=1, params=ASK_REMOTE_DECODE)
        if first.kv_params is None:
            text = f"{prefill.address} hands over no KV parameters; its connector is not the plan's"
            return [judged("kv-moves", name, text, ok=False)]
        handed = await caller.complete(decode.url, prompt, most=GENERATED, params=first.kv_params)
        after = await caller.metrics(decode.url)
        alone = await caller.complete(prefill.url, prompt, most=GENERATED)
    except CallError as problem:
        return [judged("kv-moves", name, str(problem), ok=False)]
    link = next(
        one
        for one in subject.plan.links
        if (one.prefill, one.decode) == (prefill.pool.address, decode.pool.address)
    )
    return [
        _moved(subject, name, len(prompt), delta=grown(before, after)),
        bandwidth(name, link, delta=grown(before, after), scale=after.time_scale),
        _parity(name, prefill, same=handed.same_as(alone), whole=handed.tokens is not None),
    ]


def _moved(subject: Subject, name: str, tokens: int, *, delta: Mapping[str, float]) -> Finding:
    hits = delta.get("vllm:external_prefix_cache_hits_total", 0.0)
    moved = delta.get("vllm:nixl_bytes_transferred_sum", 0.0)
    failed = delta.get("vllm:nixl_num_failed_transfers_total", 0.0)
    figures = {
        "prompt_tokens": float(tokens),
        "external_hits": hits,
        "bytes": moved,
        "failed_transfers": failed,
    }
    if failed:
        return judged("kv-moves", name, f"{failed:.0f} KV transfers failed", ok=False, figures=figures)
    if hits < tokens - subject.block_size:
        text = (
            f"{hits:.0f} of {tokens} prompt tokens came from prefill; decode computed the rest itself, "
            "silently: check that both sides have the same connector"
        )
        return judged("kv-moves", name, text, ok=False, figures=figures)
    wanted = tokens * subject.plan.model.kv_bytes_per_token
    if moved < MOVED_SHARE * wanted:
        text = f"{format_bytes(moved)} of KV arrived, {tokens} tokens make {format_bytes(wanted)}"
        return judged("kv-moves", name, text, ok=False, figures=figures)
    text = f"{hits:.0f} of {tokens} prompt tokens came from prefill, {format_bytes(moved)}"
    return judged("kv-moves", name, text, ok=True, figures=figures)


def bandwidth(name: str, link: KvLink, *, delta: Mapping[str, float], scale: float) -> Finding:
    """Whether one transfer is as fast as planned. scale: how much faster than the plan's clock the engine runs."""
    moved = delta.get("vllm:nixl_bytes_transferred_sum", 0.0)
    took = delta.get("vllm:nixl_xfer_time_seconds_sum", 0.0) * scale
    if moved <= 0 or took <= 0:
        return skipped("bandwidth", name, "no transfer was timed")
    planned, setup = moved / link.bandwidth_low, SETUP_S[link.transport]
    figures = {"bytes": moved, "seconds": took, "planned_seconds": planned, "setup_seconds": setup}
    clock = f" of the double's clock, {scale:g} times as fast" if scale != 1 else ""
    text = f"{format_bytes(moved)} in {took * 1e3:.1f} ms{clock} ({format_speed(moved / took)}"
    least = format_speed(link.bandwidth_low)
    if took <= planned:
        text += f"), set-up included; planned are at least {least} without it"
        return judged("bandwidth", name, text, ok=True, figures=figures)
    most = f"{(planned + setup) * 1e3:.1f} ms, which are {planned * 1e3:.1f} ms at the {least} planned at least and "
    most += f"up to {setup * 1e3:.0f} ms of set-up"
    if took > planned + setup:
        return judged("bandwidth", name, f"{text}): more than {most}", ok=False, figures=figures)
    if planned < setup:
        text += f"): within {most}; set-up may be most of it, so the link itself is not judged"
        return skipped("bandwidth", name, text, figures=figures)
    return judged("bandwidth", name, f"{text}): within {most}", ok=True, figures=figures)


def _parity(name: str, prefill: Target, *, same: bool, whole: bool) -> Finding:
    of = "token ids" if whole else "texts"
    if same:
        text = f"{GENERATED} greedy tokens equal those of {prefill.address} alone ({of} compared)"
    else:
        text = f"greedy tokens differ from those of {prefill.address} alone: damaged KV, or unlike builds"
    return judged("parity", name, text, ok=same)


async def released(subject: Subject, caller: Caller, both: Pair) -> Finding:
    """KV that nobody will fetch is freed when decode is told so, long before the lease ends."""
    prefill, decode = both
    name = f"{prefill.address} -> {decode.address}"
    try:
        prompt = await caller.tokens(decode.url, subject.prompt_tokens)
        before = await caller.metrics(prefill.url)
        first = await caller.complete(prefill.url, prompt, most=1, params=ASK_REMOTE_DECODE)
        if first.kv_params is None:
            return skipped("cancel", name, "prefill hands over no KV parameters")
        held = (await caller.metrics(prefill.url))["kv_cache_usage_perc"] - before["kv_cache_usage_perc"]
        if held <= 0:
            return skipped(
                "cancel", name, "prefill holds no more KV after its answer than before: nothing to free"
            )
        await caller.release(decode.url, first.kv_params)
        begun = time.monotonic()
        free = await settles(caller, (prefill,), {prefill.address: before["kv_cache_usage_perc"]})
    except CallError as problem:
        return judged("cancel", name, str(problem), ok=False)
    took = time.monotonic() - begun
    if free:
        text = f"prefill held {held * 100:.4f} % of its KV and freed it {took:.1f} s after the release"
        return judged("cancel", name, text, ok=True, figures={"held_share": held, "seconds": took})
    text = f"prefill still holds KV {took:.0f} s after its release, so only the lease frees it"
    return judged("cancel", name, text, ok=False, figures={"held_share": held, "seconds": took})
