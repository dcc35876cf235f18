"""The routing file of one service: the plan's facts in the proxy's own type. Hosts come from the target."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import assert_never

from pydantic import ValidationError

from disaggc.diagnostics.model import Outcome, error
from disaggc.emit.engine_part import EnginePart
from disaggc.ir.canonical import fingerprint
from disaggc.ir.plan import DeploymentPlan, Literally, Pool, Replica, Role, ServicePlan
from disaggc.ir.wording import faults
from disaggc.routing.limits import Admission, ApiKeySource, ClassEntry, Health, Listen, Timeouts
from disaggc.routing.table import Dialect, KvEndpoint, Policy, PoolEntry, ReplicaEntry, RoutingTable

FIRST = 1
"""Generation of a routing file without predecessor."""
STOP_MARGIN_S = 10
"""What a proxy needs after the last answer."""
CANARY_S = 60.0
"""Between canaries: each prefills two blocks or so on two engines, which is nothing at one a minute."""


def routing_table(
    plan: DeploymentPlan,
    service: ServicePlan,
    host_of: Callable[[EnginePart], str],
    *,
    parts: Mapping[str, EnginePart],
    listen_port: int | None = None,
) -> Outcome[RoutingTable]:
    """The table of one service. host_of: where a replica answers HTTP. parts: first part by replica address."""
    try:
        table = RoutingTable(
            service=service.name,
            generation=FIRST,
            fingerprint=fingerprint(plan),
            models=(service.model.served_name,),
            dialect=dialect(service),
            pools=tuple(_pool(service, pool, host_of, parts=parts) for pool in service.pools),
            policy=Policy(service.proxy.policy),
            on_prefill_failure=service.proxy.on_prefill_failure,
            skip_prefill_below=service.skip_prefill_below,
            max_model_len=service.model.max_model_len,
            block_size=_block_size(service),
            lease_s=float(service.connector.lease_s) if service.connector else 30.0,
            proxies=len(service.proxy.instances),
            timeouts=_timeouts(service),
            admission=admission(service),
            health=Health(canary_s=None if service.connector is None else CANARY_S),
            listen=Listen(port=listen_port or service.proxy.port, admin_port=service.proxy.admin_port),
            api_key=_api_key(service),
            classes={name: ClassEntry(priority=p) for name, p in sorted(service.priorities.items())},
        )
    except ValidationError as problem:
        fault = faults(problem, "routing file")[0]
        text = f"the routing file of service `{service.name}` cannot be written: {fault}"
        return Outcome(None, (error("DGC602", text, ("services", service.name)),))
    return Outcome(table)


def with_metrics(table: RoutingTable, service: ServicePlan, host: str | None) -> RoutingTable:
    """The table of a proxy whose metrics other machines may read at `host`; administration stays on loopback."""
    port = service.proxy.metrics_port
    if host is None or port is None:
        return table
    listen = Listen(
        port=table.listen.port, admin_port=table.listen.admin_port, metrics_host=host, metrics_port=port
    )
    return table.model_copy(update={"listen": listen})


def dialect(service: ServicePlan) -> Dialect:
    """How prefill hands KV to decode here."""
    if service.connector is None:
        return Dialect.NONE
    match service.connector.type:
        case "nixl":
            return Dialect.NIXL
        case "nixl-push":
            return Dialect.NIXL_PUSH
        case "mooncake":
            return Dialect.MOONCAKE
        case "moriio":
            extra = _transfer_config(service.pools[0].replicas[0]).get("kv_connector_extra_config")
            read = isinstance(extra, dict) and extra.get("read_mode") is True
            return Dialect.MORIIO_READ if read else Dialect.MORIIO_WRITE
        case unknown:
            assert_never(unknown)


def _pool(
    service: ServicePlan, pool: Pool, host_of: Callable[[EnginePart], str], *, parts: Mapping[str, EnginePart]
) -> PoolEntry:
    split = service.flexible_ratio if pool.role is Role.FLEXIBLE else None
    return PoolEntry(
        address=pool.address,
        role=pool.role,
        replicas=tuple(_replica(service, pool, r, host=host_of(parts[r.address])) for r in pool.replicas),
        split=None if split is None else (split.prefill, split.decode),
    )


def _replica(service: ServicePlan, pool: Pool, replica: Replica, *, host: str) -> ReplicaEntry:
    ports = replica.ports
    kv = None
    if ports.side_channel is not None:
        kv = KvEndpoint(
            host=host,
            side_channel_port=ports.side_channel,
            bootstrap_port=ports.bootstrap,
            notify_port=ports.notify,
            engine_id=_engine_id(replica, pool.shape.dp),
        )
    return ReplicaEntry(
        address=replica.address,
        host=host,
        port=ports.http,
        cohort=service.cohort,
        kv=kv,
        tp=pool.shape.tp,
        dp=pool.shape.dp,
        pp=pool.shape.pp,
        kv_tokens=pool.memory.kv_tokens * pool.shape.dp or None,
        max_seqs=pool.memory.sequences * pool.shape.dp or None,
    )


def _transfer_config(replica: Replica) -> Mapping[str, object]:
    """The connector's JSON as the engine gets it; empty where there is none."""
    text = _literal(replica, "--kv-transfer-config")
    config = json.loads(text) if text is not None else {}
    return config if isinstance(config, dict) else {}


def _engine_id(replica: Replica, dp: int) -> str | None:
    """The pinned identity; of several data-parallel engines the first, which the proxy asks for by rank."""
    pinned = _transfer_config(replica).get("engine_id")
    if not isinstance(pinned, str):
        return None
    return f"{pinned}_dp0" if dp > 1 else pinned


def _literal(replica: Replica, flag: str) -> str | None:
    found = [a.value.value for a in replica.arguments if a.flag == flag and isinstance(a.value, Literally)]
    return found[-1] if found else None


def _block_size(service: ServicePlan) -> int:
    """The larger of the roles' block sizes: a shorter prompt has no whole block to move."""
    sizes = [_literal(replica, "--block-size") for pool in service.pools for replica in pool.replicas[:1]]
    return max((int(size) for size in sizes if size is not None and size.isdigit()), default=16)


def _timeouts(service: ServicePlan) -> Timeouts:
    proxy = service.proxy
    own = {"idle_upstream_s": float(proxy.idle_s), "drain_s": float(proxy.drain_s)}
    return Timeouts(**proxy.deadlines.model_dump(), **own)


def admission(service: ServicePlan) -> Admission:
    """What the proxy lets in: the planned load whole."""
    over = service.proxy.overcommit
    return Admission(seqs_overcommit=over.seqs, kv_overcommit=over.kv)


def proxy_stop_s(service: ServicePlan) -> int:
    """How long a proxy may take to end: its own drain, and never less than the engines whose answers it carries."""
    return max(service.proxy.drain_s, *(pool.timings.grace_s for pool in service.pools)) + STOP_MARGIN_S


def _api_key(service: ServicePlan) -> ApiKeySource | None:
    proxy = service.proxy
    name = api_key_variable(service)
    if name is not None:
        return ApiKeySource(env=name)
    return None if proxy.api_key_file is None else ApiKeySource(file=proxy.api_key_file)


def api_key_variable(service: ServicePlan) -> str | None:
    """The proxy's variable that holds the clients' key; None where a file holds it or the proxy is open."""
    proxy = service.proxy
    if proxy.api_key_secret is not None:
        return "DISAGGC_API_KEY"
    return proxy.api_key.name if proxy.api_key is not None and proxy.api_key.kind == "secret" else None
