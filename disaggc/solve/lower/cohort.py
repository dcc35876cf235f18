"""Who may pair: one short digest over everything prefill and decode must have in common.

vLLM's own handshake hash misses block size, layout and lengths; KV of engines that differ in those is read as garbage
with HTTP 200. The digest holds vLLM's tuple and those.
"""

from __future__ import annotations

import hashlib
import json

from disaggc.resolve.model import ResolvedService, ResolvedSpec

_SHARED_SETTINGS = (
    "attention-backend", "block-size", "chat-template", "disable-hybrid-kv-cache-manager", "dtype", "hf-overrides",
    "kv-cache-dtype", "load-format", "prefix-caching-hash-algo", "quantization", "reasoning-parser", "tokenizer",
    "tool-call-parser",
)  # fmt: skip


def cohort(resolved: ResolvedSpec, service: ResolvedService) -> str:
    """Ten hexadecimal digits; equal inputs give equal cohorts on any machine. The ratio is not part of it."""
    engine = service.given.engine
    decode = service.settings["decode"]
    parts = {
        "vllm": engine.vllm,
        "image": engine.image,
        "images": dict(sorted(engine.images.items())),
        "model": service.model_path,
        "revision": service.given.model.revision,
        "served": service.served_name,
        "max_model_len": service.max_model_len,
        "kv_dtype": service.kv_dtype,
        "connector": engine.connector.model_dump(mode="json"),
        "speculative": None
        if service.given.speculative is None
        else service.given.speculative.model_dump(mode="json"),
        "settings": {name: decode[name] for name in _SHARED_SETTINGS if name in decode},
        "fabric": resolved.fabric.type,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:10]
