"""An environment variable that the compiler decides.

The side channel's host is advertised to the peers as it stands, ports must be disjoint on a node, visible devices
follow from the placement and the hash seed must be the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.owned import OWNED_ENV
from disaggc.rules.given import env
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Variables of an engine that belong to the compiler."""
    for service in resolved.services:
        for given in env(service):
            if given.name in OWNED_ENV:
                yield Finding(
                    f"`{given.name}` is decided by the compiler and cannot be set",
                    given.path,
                    help=OWNED_ENV[given.name],
                    at_key=True,
                )


RULE = SpecRule(
    "DGC217",
    "owned-env",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/NVIDIA/srt-slurm/issues/158",
        "https://github.com/vllm-project/vllm/issues/43206",
        "https://github.com/vllm-project/vllm/issues/42625",
    ),
    fails=(
        """
        services: {chat: {engine: {env: {VLLM_NIXL_SIDE_CHANNEL_HOST: 0.0.0.0}}}}
        #                                ^ DGC217
        """,
        """
        services: {chat: {engine: {decode: {env: {CUDA_VISIBLE_DEVICES: "0,1"}}}}}
        #                                         ^ DGC217
        """,
    ),
    passes=("services: {chat: {engine: {env: {NCCL_DEBUG: WARN}}}}",),
    suppressible=False,
)
