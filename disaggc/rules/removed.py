"""Names that vLLM once had: flags, variables, KV fields and connectors, each with what became of it. Data only."""

from __future__ import annotations

from collections.abc import Mapping

REMOVED_FLAGS: Mapping[str, str] = {
    "calculate-kv-scales": "removed after 0.21; scales come with the checkpoint",
    "max-long-partial-prefills": "removed after 0.21 together with `max-num-partial-prefills`",
    "max-num-partial-prefills": "removed after 0.21; use `long-prefill-token-threshold`",
    "override-attention-dtype": "removed after 0.21",
    "swap-space": "removed with the V0 engine; the V1 engine recomputes instead of swapping",
    "num-scheduler-steps": "removed with the V0 engine; scheduling is asynchronous now",
    "use-v2-block-manager": "removed with the V0 engine",
    "preemption-mode": "removed with the V0 engine",
    "multi-step-stream-outputs": "removed with the V0 engine",
    "disable-log-requests": "replaced: request logging is off unless `enable-log-requests` is set",
}
"""`vllm serve` flag -> what became of it."""

REMOVED_ENV: Mapping[str, str] = {
    "VLLM_NIXL_ABORT_REQUEST_TIMEOUT": "replaced by the lease (`kv_lease_duration`) in 0.22",
    "VLLM_RPC_TIMEOUT": "removed after 0.21",
    "VLLM_USE_V1": "removed with the V0 engine",
    "VLLM_ATTENTION_BACKEND": "replaced by `--attention-backend`",
    "VLLM_MORIIO_CONNECTOR_READ_MODE": "replaced by the connector option `read_mode`",
    "VLLM_MORIIO_QP_PER_TRANSFER": "replaced by the connector option `qp_per_transfer`",
    "VLLM_MORIIO_POST_BATCH_SIZE": "replaced by the connector option `post_batch_size`",
    "VLLM_MORIIO_NUM_WORKERS": "replaced by the connector option `num_workers`",
}
"""Environment variable -> what became of it."""

REMOVED_OPTIONS: Mapping[str, str] = {
    "kv_rank": "removed: roles are per request now",
    "kv_parallel_size": "removed: any number of prefill and decode engines may pair",
    "kv_ip": "removed: addresses travel with each request",
    "kv_buffer_size": "removed together with the P2pNccl connector",
}
"""Field of the KV transfer configuration -> what became of it."""
