"""What belongs to the compiler: flags, environment and ports that a spec cannot set, each with what to write instead.

One list for the rules that refuse them and for the stages that write them. Knows no check and no value.
"""

from __future__ import annotations

from collections.abc import Mapping

_SHAPE = "limit the shapes with `constraints.<role>.{tp, pp, dp}`; the solver chooses among them"
_SHARED_KV = "write `constraints.<role>.dcp`, e.g. `dcp: [1, 8]`; the solver chooses among them"
_RANKS = "nothing to write: ranks and addresses follow from the placement"
_PORTS = "nothing to write: one port planner gives every process its ports"
_SIZES = "nothing to write: sizes follow from the memory model and the planned load"
_TRANSFER = "write `engine.connector.{type, lease, load_failure, options}`"
_SPECULATIVE = "write the service's `speculative: {method, tokens, acceptance, model}`"
_TLS = "end TLS in front of the proxy; engines listen on the cluster's network only"
_LIFECYCLE = "write `rollout.drain_timeout`; shutdown, grace and lease are kept in order by the compiler"

OWNED_FLAGS: Mapping[str, str] = {
    "model": "write `model.weights` or `model.id`",
    "model-tag": "write `model.weights` or `model.id`",
    "served-model-name": "write `model.served_name`",
    "revision": "write `model.revision`",
    "host": _PORTS,
    "port": _PORTS,
    "grpc": "nothing to write: the proxy speaks HTTP to the engines",
    "grpc-port": _PORTS,
    "uds": _PORTS,
    "tensor-parallel-size": _SHAPE,
    "pipeline-parallel-size": _SHAPE,
    "data-parallel-size": _SHAPE,
    "prefill-context-parallel-size": "nothing to write: prompts over several ranks are not planned by disaggc",
    "decode-context-parallel-size": _SHARED_KV,
    "enable-expert-parallel": "write `constraints.<role>.expert_parallel`",
    "data-parallel-size-local": _RANKS,
    "data-parallel-rank": _RANKS,
    "data-parallel-start-rank": _RANKS,
    "data-parallel-address": _RANKS,
    "data-parallel-rpc-port": _PORTS,
    "data-parallel-supervisor-port": _PORTS,
    "data-parallel-hybrid-lb": _RANKS,
    "data-parallel-external-lb": _RANKS,
    "data-parallel-multi-port-external-lb": _RANKS,
    "api-server-count": _RANKS,
    "headless": _RANKS,
    "nnodes": _RANKS,
    "node-rank": _RANKS,
    "master-addr": _RANKS,
    "master-port": _PORTS,
    "distributed-executor-backend": "nothing to write: ranks are started by the target, without Ray",
    "data-parallel-backend": "nothing to write: ranks are started by the target, without Ray",
    "enable-fault-tolerance": "nothing to write: it needs an external balancer between ranks",
    "device-ids": "nothing to write: devices follow from the placement",
    "max-num-seqs": _SIZES,
    "max-num-batched-tokens": _SIZES,
    "max-cudagraph-capture-size": _SIZES,
    "kv-cache-memory-bytes": "write `gpu-memory-utilization`; KV bytes are pinned once memory is calibrated",
    "num-gpu-blocks-override": _SIZES,
    "kv-transfer-config": _TRANSFER,
    "ec-transfer-config": "nothing to write: encoder disaggregation is not planned by disaggc",
    "kv-events-config": _PORTS,
    "speculative-config": _SPECULATIVE,
    "spec-method": _SPECULATIVE,
    "spec-model": _SPECULATIVE,
    "spec-tokens": _SPECULATIVE,
    "shutdown-timeout": _LIFECYCLE,
    "fail-on-environ-validation": "nothing to write: it is always on, so that a mistyped variable fails at once",
    "hf-token": "write `engine.env: {HF_TOKEN: {secret: hf-token}}`",
    "api-key": "write `proxy.api_key`; engines are reached through the proxy only",
    "root-path": "nothing to write: the proxy calls the engines at `/`",
    "ssl-keyfile": _TLS,
    "ssl-certfile": _TLS,
    "ssl-ca-certs": _TLS,
    "ssl-cert-reqs": _TLS,
    "ssl-ciphers": _TLS,
    "config": "write the flags themselves under `engine.settings`, so that they can be checked",
    "tokens-only": "nothing to write: the proxy decides what prefill returns",
    "disable-log-stats": "nothing to write: `watch` and `smoke` read the engines' metrics",
}
"""`vllm serve` flag without dashes -> what to type instead."""

OWNED_ENV: Mapping[str, str] = {
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "nothing to write: each engine advertises its own node's address",
    "VLLM_NIXL_SIDE_CHANNEL_PORT": _PORTS,
    "VLLM_NIXL_ABORT_REQUEST_TIMEOUT": "write `engine.connector.lease`",
    "VLLM_P2P_SIDE_CHANNEL_HOST": "nothing to write: each engine advertises its own node's address",
    "VLLM_P2P_SIDE_CHANNEL_PORT": _PORTS,
    "VLLM_MOONCAKE_BOOTSTRAP_PORT": _PORTS,
    "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT": "write `engine.connector.lease`",
    "VLLM_PORT": _PORTS,
    "VLLM_HOST_IP": _RANKS,
    "VLLM_DP_MASTER_IP": _RANKS,
    "VLLM_DP_MASTER_PORT": _PORTS,
    "VLLM_DP_SIZE": _SHAPE,
    "VLLM_DP_RANK": _RANKS,
    "VLLM_DP_RANK_LOCAL": _RANKS,
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "nothing to write: it is kept above the proxy's idle time",
    "VLLM_API_KEY": "write `proxy.api_key`; engines are reached through the proxy only",
    "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": _LIFECYCLE,
    "CUDA_VISIBLE_DEVICES": "nothing to write: devices follow from the placement",
    "HIP_VISIBLE_DEVICES": "nothing to write: devices follow from the placement",
    "ROCR_VISIBLE_DEVICES": "nothing to write: devices follow from the placement",
    "PYTHONHASHSEED": "nothing to write: it is the same on every engine, else prefix hashes differ",
    "NVIDIA_VISIBLE_DEVICES": "nothing to write: devices follow from the placement",
    "RANK": _RANKS,
    "WORLD_SIZE": _RANKS,
    "LOCAL_RANK": _RANKS,
    "MASTER_ADDR": _RANKS,
    "MASTER_PORT": _PORTS,
}
"""Environment variable of an engine -> what to type instead."""

OWNED_CONNECTOR_OPTIONS: Mapping[str, str] = {
    "kv_lease_duration": "write `engine.connector.lease`",
    "http_port": _PORTS,
    "handshake_port": _PORTS,
    "notify_port": _PORTS,
    "proxy_ping_port": _PORTS,
    "proxy_ip": "nothing to write: the bundled proxy reads its replicas from its own configuration",
    "host_ip": "nothing to write: each engine advertises its own node's address",
    "bootstrap_server_address": "nothing to write: it follows from the placement",
    "engine_id": "remove it: a pinned id survives a restart and decode keeps stale addresses",
}
"""Option of a KV connector -> what to type instead."""

OWNED_PORTS = range(19000, 31521)
"""Admin and engine ports of the port planner, for at most 72 devices on a node; a user's port must lie outside."""

EPHEMERAL_PORTS = range(32768, 61000)
"""Linux's default range for outgoing connections; a listener here may find its port taken."""
