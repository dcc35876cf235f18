"""Roofline priors: the shares of peak and the fixed costs assumed for hardware nobody has measured here.

The middle values were checked against 470 published token times of vLLM and SGLang on H100, H200 and B200
(Llama-3.1-70B, Qwen3-32B, gpt-oss-120b, Kimi-K2, DeepSeek-V3): within 15 % for most systems. Ranges are 80 % ranges.
They depend on vendor, fabric and model class only, never on a case; kappa is 1.
"""

from __future__ import annotations

import math

from disaggc.catalog.facts import AcceleratorFacts, FabricFacts
from disaggc.perf.constants import Constants, Range

SOURCE = (
    "roofline priors: shares of data-sheet peaks (memory reads 45-92 %, dense matrix products 35-65 %, grouped "
    "12-36 %; AMD at 65-80 % of those), KV transfer at the fabric's stated share of line rate"
)

_BATCH_SLOPE = Range(-0.14, 0.0, 0.14)
"""Over 319 pairs of published results of one engine at a batch and at twice that batch (the models above), the
predicted growth of the step is off by -10 % to +9 % (10 % and 90 % quantiles): a power of 0.14."""
_KAPPA = Range(0.9, 1.0, 1.1)
"""1 as long as nobody measured it; the closed form of the mixed step is within 10 % of an event simulation of it, so a
colocated engine is that much in doubt where layouts are compared."""
_BURST = Range(0.15, 0.4, 0.9)
"""In published closed-loop runs of vLLM the median first token of c requests in flight takes 0.45 sqrt(c) prompts
(Llama-3.1-70B on 2, 4 and 8 H100, at every prompt and output length); with naturally spread lengths about a third."""
_JOIN, _JOIN_TOKEN = Range(0.5e-3, 2e-3, 10e-3), Range(0.1e-6, 1e-6, 5e-6)
"""The only published tails of decode replicas (SGLang with NIXL, gpt-oss-120b on H200): where more than 1 % of the
steps take up a prompt, P99 lies 3 ms above the median for 128 tokens, 8 to 30 ms for 2,048 and 75 to 100 ms for 32,784;
where fewer do, 2 to 4 ms. That engine keeps books by the token; one that keeps them by blocks may need far less."""
_HOP = Range(3e-3, 15e-3, 80e-3)
"""Front end of one leg: HTTP, tokenising, scheduling, first output. Published first tokens of short prompts leave 20 to
80 ms beside the computation (vLLM on H100 to B200 at 4 to 64 streams), other engines more."""
_AMD_READS = Range(0.60, 0.80, 1.00)
"""AMD's share of memory bandwidth over NVIDIA's. No AMD result stands behind the ranges above, and kernels differ by
class, so each kind of read is in doubt on its own (copy and serving benchmarks of MI300X against H100 and H200)."""
_AMD_PRODUCTS = Range(0.45, 0.65, 0.90)
"""The same for matrix products: MI300X reaches 45-50 % of its peak where H100 reaches 70-75 %."""
_EXACT = Range(1.0, 1.0, 1.0)
HOST_COPY = Range(0.5e9, 5e9, 40e9)
"""Device to device through the host: 0.5 GB/s pulled over PCIe, 49 GB/s pushed (vllm-project/vllm issue 52607)."""


def prior_constants(accelerator: AcceleratorFacts, fabric: FabricFacts, *, crosses_nodes: bool) -> Constants:
    """Constants for an accelerator nobody calibrated.

    crosses_nodes: the replica's tensor or expert group leaves the link domain, so that collectives ride the fabric.
    """
    amd = accelerator.vendor == "amd"
    reads, products = (_AMD_READS, _AMD_PRODUCTS) if amd else (_EXACT, _EXACT)
    hop = fabric.latency_s if crosses_nodes else 0.0
    setup = Range(0.4e-3, 2e-3, 10e-3) if fabric.rdma else Range(2e-3, 10e-3, 50e-3)
    return Constants(
        memory_eff=_times(Range(0.65, 0.80, 0.92), reads),
        expert_memory_eff=_times(Range(0.50, 0.72, 0.92), reads),
        kv_memory_eff=_times(Range(0.45, 0.65, 0.85), reads),
        compute_eff=_times(Range(0.35, 0.50, 0.65), products),
        expert_compute_eff=_times(Range(0.12, 0.22, 0.36), products),
        attention_eff=_times(Range(0.20, 0.35, 0.55), products),
        link_eff=Range(0.35, 0.55, 0.75),
        kv_eff=Range(*fabric.efficiency),
        host_bytes_per_s=HOST_COPY,
        step_s=Range(0.4e-3, 1.0e-3, 2.5e-3),
        kernel_s=Range(2.0e-6, 3.5e-6, 7.0e-6),
        sequence_s=Range(2e-6, 6e-6, 18e-6),
        collective_s=Range(6e-6 + hop, 11e-6 + 3 * hop, 25e-6 + 8 * hop),
        all2all_s=Range(20e-6 + hop, 45e-6 + 4 * hop, 100e-6 + 12 * hop),
        imbalance=Range(1.05, 1.2, 1.5),
        prefill_s=Range(3e-3, 10e-3, 50e-3),
        prefill_kernel_s=Range(10e-6, 45e-6, 140e-6),
        mixed_s=Range(1e-3, 3e-3, 8e-3),
        kv_setup_s=setup,
        hop_s=_HOP,
        kappa=_KAPPA,
        batch_slope=_BATCH_SLOPE,
        burst=_BURST,
        join_s=_JOIN,
        join_token_s=_JOIN_TOKEN,
        source=SOURCE,
    )


def _times(share: Range, factor: Range) -> Range:
    """The product of two that vary independently: their spreads add as squares of logarithms. At most 97 % of peak."""
    mid = share.mid * factor.mid
    down = math.hypot(math.log(share.mid / share.low), math.log(factor.mid / factor.low))
    up = math.hypot(math.log(share.high / share.mid), math.log(factor.high / factor.mid))
    return Range(mid * math.exp(-down), mid, min(mid * math.exp(up), 0.97))
