"""A side channel that peers cannot reach.

The host of the side channel is bound and handed to the peers as it stands. `localhost` and `0.0.0.0` start fine and
fail at the first request from another node, as an engine-id mismatch or a hang.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.plan import OwnAddress
from disaggc.rules.planned import env_value, moves_kv, replicas, service_path, text
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """VLLM_NIXL_SIDE_CHANNEL_HOST of every NIXL replica: its own address, or a literal one of its own node."""
    addresses = {node.name: node.address for node in planned.plan.nodes}
    for service, pool, replica in replicas(planned.plan):
        nixl = service.connector is not None and service.connector.type in ("nixl", "nixl-push")
        if not nixl or not moves_kv(pool):
            continue
        value = env_value(replica, "VLLM_NIXL_SIDE_CHANNEL_HOST")
        if isinstance(value, OwnAddress):
            continue
        host = text(value)
        own = {addresses.get(slot.node) for slot in replica.slots}
        if host is None or _unroutable(host) or (len(replica.slots) > 1 or host not in own):
            yield Finding(
                f"{replica.address} advertises {host or 'localhost'} as its side channel, not its node's address",
                service_path(service),
            )


def _unroutable(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host in ("localhost", "")
    return address.is_loopback or address.is_unspecified


RULE = PlanRule(
    "DGC456",
    "side-channel-address",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/NVIDIA/srt-slurm/issues/158",
        "https://github.com/vllm-project/vllm/issues/27083",
    ),
    fails=(
        (Edit("services/chat/pools/decode/replicas/0/env/VLLM_NIXL_SIDE_CHANNEL_HOST", "127.0.0.1"),),
        (Edit("services/chat/pools/prefill/replicas/0/env/VLLM_NIXL_SIDE_CHANNEL_HOST", None),),
    ),
)
