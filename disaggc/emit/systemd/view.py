"""What stands in systemd units, typed and unquoted: made from the plan, placed by templates, read back."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from disaggc.emit.engine_part import EnginePart, downloads, host_text, linked_on_node, reaches_out, uses_rdma
from disaggc.emit.names import engine_unit, proxy_unit
from disaggc.emit.numa import Near, near
from disaggc.emit.routing_file import proxy_stop_s
from disaggc.ir.plan import DeploymentPlan, FromSecret, ProxyInstance, ServicePlan

DEFAULT_PROXY = "/usr/local/bin/disaggc"
"""Where the proxy's executable is expected when the spec does not say."""
MODEL_CACHE = "disaggc/huggingface"
"""One cache of downloaded weights per host, not one per engine."""
START_LIMIT = 3
"""Failed starts after which a person has to look."""
RESTART_S = 10
_DEVICES = {"nvidia": ("char-nvidia*",), "amd": ("/dev/kfd", "char-drm"), "cpu": ()}
_RDMA_DEVICES = ("char-infiniband*", "/dev/infiniband/rdma_cm")
_GROUPS = {"nvidia": (), "amd": ("render", "video"), "cpu": ()}
"""Groups that own the accelerators' device nodes where they are not open to all."""


@dataclass(frozen=True, slots=True)
class EngineUnit:
    """An engine's unit."""

    stamp: str
    title: str
    after: tuple[str, ...]
    user: str
    groups: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    environment_files: tuple[str, ...]
    preflight: tuple[str, ...]
    command: tuple[str, ...]
    ready: tuple[str, ...]
    start_s: int
    stop_s: int
    restart_s: int
    start_limit: int
    start_limit_s: int
    caches: tuple[str, ...]
    shm_bytes: int | None
    devices: tuple[str, ...]
    peers: tuple[str, ...]
    protect_home: str
    near: Near | None

    @property
    def command_lines(self) -> tuple[tuple[str, ...], ...]:
        """The command's words after the executable, a new line before every flag, so that diffs are readable."""
        lines: list[list[str]] = [[]]
        for word in self.command[1:]:
            if word.startswith("--"):
                lines.append([])
            lines[-1].append(word)
        return tuple(map(tuple, lines))


@dataclass(frozen=True, slots=True)
class ProxyUnit:
    """A proxy's unit."""

    stamp: str
    title: str
    wants: tuple[str, ...]
    user: str
    environment_files: tuple[str, ...]
    command: tuple[str, ...]
    stop_s: int
    low_port: bool
    protect_home: str


@dataclass(frozen=True, slots=True)
class Host:
    """Where units of one plan go. folder: configuration on the hosts; user: whom services run as; stamp: first line."""

    folder: str
    user: str
    stamp: str

    def check_script(self) -> str:
        """The script that units call before an engine starts and until it answers."""
        return f"{self.folder}/engine-check.sh"

    def secrets(self, names: Iterable[str]) -> tuple[str, ...]:
        """Environment files that hold the secrets, by name."""
        return tuple(f"{self.folder}/secrets/{name}" for name in sorted(set(names)))


def engine_view(
    plan: DeploymentPlan, part: EnginePart, host: Host, *, earlier: EnginePart | None
) -> EngineUnit:
    """The unit of one engine process. earlier: the engine on the same node that must have started before."""
    timings, pool, command = part.pool.timings, part.pool, part.service.engine.command
    if command is None:
        raise ValueError("an engine without a command has no unit")
    rdma = uses_rdma(plan, part)
    secrets = [v for v in part.replica.env if isinstance(v.value, FromSecret)]
    devices = part.devices()
    # Engines that pass KV inside the node must see each other's segments; all others get a /dev/shm of their own.
    private_shm = not linked_on_node(part.service, part.node.name)
    return EngineUnit(
        stamp=host.stamp,
        title=f"{part.pool_name} engine {part.replica.index} of {part.service.name}"
        + (f", node {part.slot.rank}" if part.ranked else ""),
        after=() if earlier is None else (engine_unit(earlier),),
        user=host.user,
        groups=_GROUPS[pool.vendor],
        environment=_environment(part),
        environment_files=host.secrets(v.value.name for v in secrets if isinstance(v.value, FromSecret)),
        preflight=(
            host.check_script(), "preflight", pool.vendor, devices[1] if devices else "", "rdma" if rdma else "no-rdma",
            str(pool.shm_bytes), *(v.name for v in secrets),
        ),
        command=(command, *part.words(host_text(part))),
        ready=_ready(part, host) if part.serves else (),
        start_s=timings.startup_s + RESTART_S,
        stop_s=timings.grace_s,
        restart_s=RESTART_S,
        start_limit=START_LIMIT,
        start_limit_s=START_LIMIT * (timings.startup_s + RESTART_S) + timings.grace_s,
        caches=(cache_directory(part), *([MODEL_CACHE] if downloads(part) else ())),
        shm_bytes=pool.shm_bytes if private_shm else None,
        devices=(*_DEVICES[pool.vendor], *(_RDMA_DEVICES if rdma else ())),
        peers=() if reaches_out(part) else peer_addresses(plan),
        protect_home=_protect_home((command, part.service.model.path)),
        near=near(part),
    )  # fmt: skip


def proxy_view(
    plan: DeploymentPlan, service: ServicePlan, instance: ProxyInstance, *, host: Host
) -> ProxyUnit:
    """The unit of one proxy; engines on its node are wanted, never required: the others go on serving."""
    proxy = service.proxy
    index = service.proxy.instances.index(instance)
    command = proxy.command or DEFAULT_PROXY
    wants = [
        engine_unit(
            EnginePart(service, pool, replica, slot, plan.node(slot.node), plan.node(replica.slots[0].node))
        )
        for pool in service.pools
        for replica in pool.replicas
        for slot in replica.slots
        if slot.node == instance.node
    ]
    key = proxy.api_key
    return ProxyUnit(
        stamp=host.stamp,
        title=f"proxy {index} of {service.name}",
        wants=tuple(wants),
        user=host.user,
        environment_files=host.secrets([key.name]) if isinstance(key, FromSecret) else (),
        command=(command, "proxy", "--config", f"{host.folder}/{service.name}/routing.json"),
        stop_s=proxy_stop_s(service),
        low_port=proxy.port < 1024,
        protect_home=_protect_home((command, proxy.api_key_file or "")),
    )


def proxy_unit_of(service: ServicePlan, instance: ProxyInstance) -> str:
    """Name of a proxy's unit."""
    return proxy_unit(service, service.proxy.instances.index(instance))


def cache_directory(part: EnginePart) -> str:
    """Directory under /var/cache that only this process writes."""
    return "disaggc/" + engine_unit(part).removesuffix(".service").removeprefix("disaggc-")


def _environment(part: EnginePart) -> tuple[tuple[str, str], ...]:
    """The plan's variables, and what this target adds: visible accelerators and a home that can be written."""
    text = host_text(part)
    cache = f"/var/cache/{cache_directory(part)}"
    out = {"HOME": cache, "XDG_CACHE_HOME": cache}
    if downloads(part):
        out["HF_HOME"] = f"/var/cache/{MODEL_CACHE}"
    devices = part.devices()
    if devices is not None:
        out[devices[0]] = devices[1]
    out |= {v.name: text(v.value) for v in part.replica.env if not isinstance(v.value, FromSecret)}
    return tuple(sorted(out.items()))


def _ready(part: EnginePart, host: Host) -> tuple[str, ...]:
    address = part.node.address or ""
    shown = f"[{address}]" if ":" in address else address
    url = f"http://{shown}:{part.replica.ports.http}/health"
    return (host.check_script(), "ready", url, str(part.pool.timings.startup_s))


def peer_addresses(plan: DeploymentPlan) -> tuple[str, ...]:
    """Addresses of the cluster's nodes; none when one of them is a DNS name, which the filter cannot follow."""
    found = [node.address for node in plan.nodes if node.address is not None]
    try:
        return tuple(str(address) for address in map(ipaddress.ip_address, found))
    except ValueError:
        return ()


def _protect_home(paths: Iterable[str]) -> str:
    return "read-only" if any(path.startswith(("/home/", "/root/")) for path in paths) else "yes"
