"""The environment of one engine process: what the compiler must set, then what the user gave."""

from __future__ import annotations

from collections.abc import Iterable

from disaggc.catalog.facts import Attention
from disaggc.ir.plan import ConnectorPlan, EnvVar, FromSecret, Literally, OwnAddress, Ports, Role, Value
from disaggc.resolve.model import NodeGroupFacts, ResolvedService, ResolvedSpec
from disaggc.solve.lower.connector import has_leases
from disaggc.solve.lower.lifecycle import KEEP_ALIVE_S
from disaggc.spec.model import Env, SecretRef

_ACCELERATOR_TRANSPORTS = {"nvidia": ("cuda_copy", "cuda_ipc"), "amd": ("rocm_copy", "rocm_ipc"), "cpu": ()}
_RDMA_TRANSPORT = {"nvidia": "rc", "amd": "rc_x", "cpu": "rc"}


def engine_env(
    resolved: ResolvedSpec,
    service: ResolvedService,
    role: Role,
    *,
    group: NodeGroupFacts,
    ports: Ports,
    connector: ConnectorPlan | None,
    startup_s: int,
    multi_node: bool,
) -> tuple[EnvVar, ...]:
    """All variables, sorted by name; a user's value for a variable the compiler sets is an error found by the rules."""
    own: dict[str, Value] = {
        "PYTHONHASHSEED": Literally(value="0"),
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": Literally(value=str(KEEP_ALIVE_S)),
        "VLLM_ENGINE_READY_TIMEOUT_S": Literally(value=str(startup_s)),
        "VLLM_PORT": Literally(value=str(ports.internal)),
        "VLLM_NO_USAGE_STATS": Literally(value="1"),
    }
    if multi_node:
        own["VLLM_HOST_IP"] = OwnAddress()
        own |= _collectives(resolved)
    if connector is not None:
        own |= _kv_transfer(service, connector, ports)
        own |= _transports(resolved, group)
    known = service.snapshot.env_names
    variables = {
        name: EnvVar(name=name, value=value)
        for name, value in own.items()
        if not name.startswith("VLLM_") or name in known
    }
    for where, given in _given(service, role):
        for name, user in given.items():
            variables[name] = EnvVar(
                name=name, value=_value(user), because=(f"services.{service.name}.{where}.{name}",)
            )
    return tuple(variables[name] for name in sorted(variables))


def _kv_transfer(service: ResolvedService, connector: ConnectorPlan, ports: Ports) -> dict[str, Value]:
    match connector.type:
        case "nixl" | "nixl-push":
            env: dict[str, Value] = {
                "VLLM_NIXL_SIDE_CHANNEL_HOST": OwnAddress(),
                "VLLM_NIXL_SIDE_CHANNEL_PORT": Literally(value=str(ports.side_channel)),
            }
            if not has_leases(service.snapshot, connector.name):
                env["VLLM_NIXL_ABORT_REQUEST_TIMEOUT"] = Literally(value=str(connector.lease_s))
            if service.model.attention is Attention.HYBRID:
                # NIXL moves recurrent state in this layout only; vLLM asserts it at start.
                env["VLLM_SSM_CONV_STATE_LAYOUT"] = Literally(value="DS")
            return env
        case "mooncake":
            # Consumers dial the producer's bootstrap server; only the producer listens.
            port = ports.bootstrap
            env = {"VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT": Literally(value=str(connector.lease_s))}
            return env | (
                {"VLLM_MOONCAKE_BOOTSTRAP_PORT": Literally(value=str(port))} if port is not None else {}
            )
        case "moriio":
            return {}


def _transports(resolved: ResolvedSpec, group: NodeGroupFacts) -> dict[str, Value]:
    """UCX's transports, said outright: left alone, UCX falls back to TCP without a word."""
    fabric = resolved.spec.cluster.fabric
    if resolved.fabric.type == "efa":
        return {}
    vendor = group.accelerator.vendor
    network = (_RDMA_TRANSPORT[vendor],) if resolved.fabric.rdma else ("tcp",)
    env: dict[str, Value] = {
        "UCX_TLS": Literally(value=",".join((*_ACCELERATOR_TRANSPORTS[vendor], "self", "sm", *network)))
    }
    if group.nic_devices and resolved.fabric.rdma:
        env["UCX_NET_DEVICES"] = Literally(value=",".join(f"{device}:1" for device in group.nic_devices))
    if fabric.gid_index is not None:
        env["UCX_IB_GID_INDEX"] = Literally(value=str(fabric.gid_index))
    return env


def _collectives(resolved: ResolvedSpec) -> dict[str, Value]:
    fabric = resolved.spec.cluster.fabric
    env: dict[str, Value] = {}
    if fabric.interface is not None:
        env |= {
            name: Literally(value=fabric.interface) for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
        }
    if fabric.gid_index is not None:
        env["NCCL_IB_GID_INDEX"] = Literally(value=str(fabric.gid_index))
    return env


def _given(service: ResolvedService, role: Role) -> Iterable[tuple[str, Env]]:
    engine = service.given.engine
    yield "engine.env", engine.env
    if role is Role.PREFILL:
        yield "engine.prefill.env", engine.prefill.env
    if role is Role.DECODE:
        yield "engine.decode.env", engine.decode.env


def _value(given: str | SecretRef) -> Value:
    return FromSecret(name=given.secret) if isinstance(given, SecretRef) else Literally(value=given)
