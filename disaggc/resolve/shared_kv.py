"""Where ranks of a tensor-parallel group may share the KV of a sequence (dcp), and where vLLM would refuse to start.

The solver, the rules and the checks of a finished plan ask the same function. Connectors are `pairing`'s business.
Source: vLLM 0.32 and 0.33 config/model.py:1578-1607, v1/worker/cp_utils.py, `supports_dcp` of v1/attention/backends,
mla/flashinfer_mla.py:155-161, platforms/cuda.py:121.
"""

from __future__ import annotations

from disaggc.catalog.facts import AcceleratorFacts, Attention
from disaggc.catalog.sizing import dcp_allowed, latent_cache
from disaggc.ir.plan import Shape
from disaggc.resolve.model import PartName, ResolvedService

BESIDE_STATE_SINCE = (0, 32, 0)
"""Oldest version read that shares KV of layers that stand beside recurrent ones."""
_TOKENWISE = "FLASHINFER_MLA"
"""Attention backend that reads shared KV only where neighbouring tokens are on neighbouring ranks."""
_BACKENDS = frozenset(
    {
        "CUTLASS_MLA", "FLASHINFER", "FLASHINFER_MLA", "FLASHINFER_MLA_SPARSE", "FLASHMLA", "FLASHMLA_SPARSE",
        "FLASH_ATTN", "FLASH_ATTN_MLA", "ROCM_AITER_MLA", "TOKENSPEED_MLA", "TRITON_MLA",
    }
)  # fmt: skip
"""Attention backends whose decode kernels return the softmax sums that ranks exchange."""


def shared_kv_refusal(
    service: ResolvedService,
    shape: Shape,
    *,
    part: PartName,
    accelerator: AcceleratorFacts,
) -> str | None:
    """Why engines of this shape would refuse to share KV on these accelerators; None where they do, or dcp is 1."""
    if shape.dcp == 1:
        return None
    return (
        dcp_allowed(service.model, shape.tp, shape.dcp)
        or _kernels(service, shape, accelerator)
        or _settings(service, shape, part)
    )


def _kernels(service: ResolvedService, shape: Shape, accelerator: AcceleratorFacts) -> str | None:
    model = service.model
    if accelerator.vendor == "cpu":
        return f"no attention kernel for CPUs shares KV (dcp {shape.dcp})"
    if accelerator.vendor == "amd" and not latent_cache(model):
        return f"no attention kernel for {accelerator.id} shares KV of separate heads (dcp {shape.dcp}), only latents"
    if accelerator.vendor == "amd" and model.kv_extra_bytes_per_token:
        return f"no sparse attention kernel for {accelerator.id} shares KV (dcp {shape.dcp})"
    if model.attention is Attention.HYBRID and service.snapshot.version < BESIDE_STATE_SINCE:
        return f"vLLM {service.snapshot.text} cannot share KV beside recurrent state (dcp {shape.dcp})"
    return None


def blockwise_refusal(
    service: ResolvedService, shape: Shape, *, part: PartName, accelerator: AcceleratorFacts
) -> str | None:
    """Why engines that hand KV over cannot read it as NIXL has them share it: block by block, not token by token."""
    model = service.model
    if shape.dcp == 1 or service.given.engine.connector.type != "nixl" or not latent_cache(model):
        return None
    # what vLLM takes by itself on compute capability 10; boards without a link between them have 12, and other kernels
    data_centre = accelerator.architecture.startswith("blackwell") and accelerator.link_domain > 1
    taken = _TOKENWISE if data_centre and not model.kv_extra_bytes_per_token else None
    if (_backend(service, part) or taken) != _TOKENWISE:
        return None
    return (
        f"NIXL shares KV by blocks (dcp {shape.dcp}), which {_TOKENWISE}, taken on {accelerator.id}, cannot read; "
        "`attention-backend: CUTLASS_MLA` can"
    )


def _backend(service: ResolvedService, part: PartName) -> str | None:
    """The attention backend that the user names; None where the engine chooses."""
    given = service.settings[part].get("attention-backend")
    return given.upper() if isinstance(given, str) and given.upper() != "AUTO" else None


def _settings(service: ResolvedService, shape: Shape, part: PartName) -> str | None:
    backend = _backend(service, part)
    if backend is not None and backend not in _BACKENDS:
        return f"`attention-backend` {backend} cannot share KV (dcp {shape.dcp})"
    if service.settings[part].get("enable-return-routed-experts") is True:
        return f"`enable-return-routed-experts` does not go with shared KV (dcp {shape.dcp})"
    return None
