"""Expandable segments together with a KV connector.

RDMA registration fails on memory from expandable segments: the engines start, and the first transfer breaks. vLLM
itself looks only at `PYTORCH_CUDA_ALLOC_CONF`, while torch also honours `PYTORCH_ALLOC_CONF`.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import effective, env, transfers_kv
from disaggc.rules.rule import Finding, SpecRule

_NAMES = frozenset({"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"})


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Allocator settings with expandable_segments:True where KV moves and the cumem allocator is not chosen."""
    for service in resolved.services:
        for given in env(service):
            text = given.text.replace(" ", "").lower()
            if (
                given.name not in _NAMES
                or "expandable_segments:true" not in text
                or not transfers_kv(service)
            ):
                continue
            cumem = [effective(service, role).get("enable-cumem-allocator") for role in given.roles]
            if given.name == "PYTORCH_CUDA_ALLOC_CONF" and all(
                flag is not None and flag.on for flag in cumem
            ):
                continue
            yield Finding(
                f"`{given.name}` turns on expandable segments, whose memory RDMA cannot register; "
                "the first KV transfer would fail",
                given.path,
                help="remove `expandable_segments:True`",
            )


RULE = SpecRule(
    "DGC220",
    "expandable-segments",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/vllm-project/vllm/issues/41237",
        "https://github.com/vllm-project/vllm/issues/48243",
        "vLLM 0.33: vllm/config/vllm.py:1246-1302, vllm/device_allocator/alloc_conf.py:28",
    ),
    fails=(
        """
        services: {chat: {engine: {env: {PYTORCH_ALLOC_CONF: "expandable_segments:True"}}}}
        #                                                    ^ DGC220
        """,
    ),
    passes=('services: {chat: {engine: {env: {PYTORCH_ALLOC_CONF: "max_split_size_mb:512"}}}}',),
)
