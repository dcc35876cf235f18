"""Where a choice tips: the rate at which one more prefill replica is needed, the prompt length at which P/D pays.

Reads predictions; knows no solver.
"""

from __future__ import annotations

from disaggc.ir.plan import Role
from disaggc.perf.capacity import Candidate, capacity
from disaggc.perf.estimate import Estimate
from disaggc.perf.layout import Layout, LayoutPrediction
from disaggc.perf.models import Models
from disaggc.perf.prefill import PromptTimes
from disaggc.perf.steady import falling_root
from disaggc.resolve.model import ResolvedService


def doubling_rate(models: Models, service: ResolvedService, layout: Layout) -> Estimate | None:
    """Requests/s at which the layout's prefill pools are full and one more replica is needed; None without prefill.

    The largest rate at which every TTFT bound holds; without such a bound, the rate the pools cannot exceed.
    """
    pools = [p for p in layout.pools if p.role is Role.PREFILL and p.replicas]
    if not pools:
        return None
    total: Estimate | None = None
    for pool in pools:
        one = capacity(models, service, Candidate(Role.PREFILL, pool.group, pool.shape, pool.replicas))
        here = one.rate.scaled(float(pool.replicas)) if one.feasible else Estimate(0.0, 0.0, 0.0)
        total = here if total is None else total.plus(here)
    return total


def break_even_tokens(service: ResolvedService, prediction: LayoutPrediction) -> int:
    """Uncached prompt tokens below which the decode replica should compute the prompt itself.

    Two conditions: the request's own first token comes sooner than over prefill and transfer, and the chunk does not
    stretch a decode step beyond the tightest ITL bound (without one, to more than twice its usual time). At least one
    block: less cannot be transferred.
    """
    case = prediction.case
    if case is None or case.colocated:
        return 0
    steady = case.at_corner(1).steady
    decode, prefill = case.decode[0], case.prefill[0]
    step, local = steady.steps[0], PromptTimes(case.times(decode)[1], decode.fit.max_num_batched_tokens)
    remote = PromptTimes(case.times(prefill)[1], prefill.fit.max_num_batched_tokens)
    values = case.times(prefill)[1].values
    limits = [b.limit_s for load in service.classes for b in load.bounds if b.metric == "itl"]
    slack = max(0.0, min(limits) - step) if limits else step

    def gain(tokens: float) -> float:
        squares = tokens * tokens
        own = step / 2 + local.mixed_s(tokens, squares, step_s=step)
        computing, moving = remote.fetched_s(tokens, squares, case.paths[0], values=values)
        sent = values.hop_s + steady.wait_s + computing + moving
        return min(sent - own, slack - local.chunk_s(tokens, squares))

    return max(decode.fit.block_size, int(falling_root(gain, 1.0, float(service.max_model_len))))
