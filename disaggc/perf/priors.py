"""Roofline priors: the shares of peak and the fixed costs assumed for hardware nobody has measured here.

Ranges are 80 % ranges over public vLLM results on many models, wide on purpose (a roofline is off by 30-50 %). They
depend on vendor, fabric and model class only, never on a case; kappa is 1.
"""

from __future__ import annotations

from disaggc.catalog.facts import AcceleratorFacts, FabricFacts
from disaggc.perf.constants import Constants, Range

# batch_slope: over 319 pairs of published results of one engine at a batch and at twice that batch (Llama-3.1-70B,
# gpt-oss-120b, DeepSeek-V3, Kimi-K2, Qwen3-32B on H100, H200, B200), the predicted growth of the step is off by -10 %
# to +9 % (10 % and 90 % quantiles), which is a power of 0.14.
SOURCE = (
    "roofline priors: shares of data-sheet peaks seen in public serving results (memory 45-80 %, dense matrix products "
    "35-65 %, grouped 15-40 %), launch 1-4 ms a step, KV transfer at the fabric's stated share of line rate"
)


def prior_constants(accelerator: AcceleratorFacts, fabric: FabricFacts, *, crosses_nodes: bool) -> Constants:
    """Constants for an accelerator nobody calibrated.

    crosses_nodes: the replica's tensor or expert group leaves the link domain, so that collectives ride the fabric.
    """
    # AMD's kernels reach a smaller share of peak than NVIDIA's in most public comparisons at equal batch.
    relative = 0.8 if accelerator.vendor == "amd" else 1.0
    hop = fabric.latency_s if crosses_nodes else 0.0
    setup = Range(0.4e-3, 2e-3, 10e-3) if fabric.rdma else Range(2e-3, 10e-3, 50e-3)
    return Constants(
        memory_eff=_scaled(Range(0.65, 0.80, 0.92), relative),
        expert_memory_eff=_scaled(Range(0.50, 0.72, 0.92), relative),
        kv_memory_eff=_scaled(Range(0.45, 0.65, 0.85), relative),
        compute_eff=_scaled(Range(0.35, 0.50, 0.65), relative),
        expert_compute_eff=_scaled(Range(0.12, 0.22, 0.36), relative),
        attention_eff=_scaled(Range(0.20, 0.35, 0.55), relative),
        link_eff=Range(0.35, 0.55, 0.75),
        kv_eff=Range(*fabric.efficiency),
        step_s=Range(0.4e-3, 1.0e-3, 2.5e-3),
        kernel_s=Range(2.0e-6, 3.5e-6, 7.0e-6),
        sequence_s=Range(2e-6, 6e-6, 18e-6),
        collective_s=Range(6e-6 + hop, 11e-6 + 3 * hop, 25e-6 + 8 * hop),
        all2all_s=Range(20e-6 + hop, 45e-6 + 4 * hop, 100e-6 + 12 * hop),
        imbalance=Range(1.05, 1.2, 1.5),
        prefill_s=Range(3e-3, 8e-3, 25e-3),
        prefill_kernel_s=Range(8e-6, 25e-6, 90e-6),
        mixed_s=Range(1e-3, 3e-3, 8e-3),
        kv_setup_s=setup,
        hop_s=Range(0.5e-3, 2e-3, 8e-3),
        batch_slope=Range(-0.14, 0.0, 0.14),
        source=SOURCE,
    )


def _scaled(range_: Range, factor: float) -> Range:
    return Range(range_.low * factor, range_.mid * factor, range_.high * factor)
