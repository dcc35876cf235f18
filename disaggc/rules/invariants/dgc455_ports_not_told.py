"""Ports that the plan holds and the engine is not told.

The proxy dials what the plan says. An engine left to its defaults listens elsewhere, or where another one does.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.plan import Replica, ServicePlan
from disaggc.rules.planned import env_number, flag_number, replicas, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """`--port`, `VLLM_PORT` and the side channel's variable against the planned ports."""
    for service, _, replica in replicas(planned.plan):
        for name, told, meant in _told(service, replica):
            if meant is not None and told != meant:
                shown = "nothing" if told is None else f"{told:g}"
                yield Finding(
                    f"{replica.address} is told {shown} as {name}, the plan has {meant}",
                    service_path(service),
                )


def _told(service: ServicePlan, replica: Replica) -> Iterator[tuple[str, float | None, int | None]]:
    yield "`--port`", flag_number(replica, "port"), replica.ports.http
    yield "`VLLM_PORT`", env_number(replica, "VLLM_PORT"), replica.ports.internal
    if replica.ports.dp_rpc is not None:
        rpc = flag_number(replica, "data-parallel-rpc-port")
        yield "`--data-parallel-rpc-port`", rpc, replica.ports.dp_rpc
    if service.connector is not None and service.connector.type in ("nixl", "nixl-push"):
        told = env_number(replica, "VLLM_NIXL_SIDE_CHANNEL_PORT")
        yield "`VLLM_NIXL_SIDE_CHANNEL_PORT`", told, replica.ports.side_channel
    if replica.ports.bootstrap is not None:
        told = env_number(replica, "VLLM_MOONCAKE_BOOTSTRAP_PORT")
        yield "`VLLM_MOONCAKE_BOOTSTRAP_PORT`", told, replica.ports.bootstrap


RULE = PlanRule(
    "DGC455",
    "ports-not-told",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/llm-d/llm-d/issues/668",
        "https://github.com/vllm-project/vllm/issues/43206",
    ),
    fails=(
        (Edit("services/chat/pools/decode/replicas/0/arguments/--port", "8000"),),
        (Edit("services/chat/pools/decode/replicas/0/env/VLLM_NIXL_SIDE_CHANNEL_PORT", None),),
    ),
)
