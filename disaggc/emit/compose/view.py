"""What stands in a compose file, typed and unquoted: made from the plan, placed by a template, read back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from disaggc.emit.engine_part import EnginePart, downloads, host_text, linked_on_node, uses_rdma
from disaggc.emit.numa import near
from disaggc.emit.routing_file import proxy_stop_s
from disaggc.emit.shell import RUN_ARGUMENTS, required_variables
from disaggc.emit.stamp import Stamp
from disaggc.ir.plan import DeploymentPlan, FromSecret, ProxyInstance, ServicePlan
from disaggc.spec.model import ComposeTarget

_AMD_DEVICES = ("/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri")
_RDMA_DEVICES = ("/dev/infiniband:/dev/infiniband",)
MODEL_CACHE = "huggingface"
"""One volume of downloaded weights per host, not one per engine."""
_ASK = "import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=4)"
"""Asks an address from inside a container; every engine image has Python, not every one has curl."""


@dataclass(frozen=True, slots=True)
class Room:
    """The namespaces that engines of one service share on a host. They end with it, so it does nothing at all."""

    name: str
    image: str
    shm_bytes: int


@dataclass(frozen=True, slots=True)
class EngineService:
    """One engine."""

    name: str
    image: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    env_files: tuple[str, ...]
    stop_s: int
    start_s: int
    room: str | None
    shm_bytes: int
    cpus: str | None
    memory_bytes: int | None
    devices: tuple[str, ...]
    reservation: Mapping[str, object] | None
    cache: str
    weights: str | None
    model_cache: str | None
    health: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ProxyService:
    """One proxy."""

    name: str
    image: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    env_files: tuple[str, ...]
    stop_s: int
    low_port: bool
    mounts: tuple[str, ...]
    health: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Project:
    """One host's file."""

    stamp: Stamp
    project: str
    rooms: tuple[Room, ...]
    engines: tuple[EngineService, ...]
    proxies: tuple[ProxyService, ...]

    @property
    def volumes(self) -> tuple[str, ...]:
        """Every named volume."""
        shared = {engine.model_cache for engine in self.engines if engine.model_cache is not None}
        return (*(engine.cache for engine in self.engines), *sorted(shared))


def engine_name(part: EnginePart) -> str:
    """`chat-prefill-0`."""
    return f"{part.service.name}-{part.pool_name}-{part.replica.index}"


def rooms(parts: Iterable[EnginePart]) -> tuple[Room, ...]:
    """One per service that passes KV inside the host; its shared memory is the sum of the engines'."""
    sizes: dict[str, int] = {}
    images: dict[str, str] = {}
    for part in parts:
        if linked_on_node(part.service, part.node.name):
            name = _room_name(part)
            sizes[name] = sizes.get(name, 0) + part.pool.shm_bytes
            images.setdefault(name, part.pool.image or "")
    return tuple(Room(name, images[name], size) for name, size in sorted(sizes.items()))


def _room_name(part: EnginePart) -> str:
    return f"{part.service.name}-namespaces"


def engine_service(plan: DeploymentPlan, part: EnginePart, settings: ComposeTarget) -> EngineService:
    """One engine. Linked engines see all accelerators, or the driver could not map their memory into each other."""
    linked = linked_on_node(part.service, part.node.name)
    timings, pool = part.pool.timings, part.pool
    secrets = [v for v in part.replica.env if isinstance(v.value, FromSecret)]
    entrypoint, command = _started(("vllm",), part.words(host_text(part)), [v.name for v in secrets])
    amd = pool.vendor == "amd"
    model = part.service.model.path
    return EngineService(
        name=engine_name(part),
        image=pool.image or "",
        entrypoint=entrypoint,
        command=command,
        environment=_environment(part, linked=linked),
        env_files=_env_files(settings, (v.value.name for v in secrets if isinstance(v.value, FromSecret))),
        stop_s=timings.grace_s,
        start_s=timings.startup_s,
        room=_room_name(part) if linked else None,
        shm_bytes=pool.shm_bytes,
        cpus=None if (close := near(part)) is None else close.cpus,
        memory_bytes=pool.host_memory_bytes,
        devices=(*(_AMD_DEVICES if amd else ()), *(_RDMA_DEVICES if uses_rdma(plan, part) else ())),
        reservation=_reservation(part, linked=linked),
        cache=f"{engine_name(part)}-cache",
        model_cache=MODEL_CACHE if downloads(part) else None,
        weights=model if model.startswith("/") else None,
        health=(
            "CMD",
            "python3",
            "-c",
            _ASK,
            _url(part.node.address or "", part.replica.ports.http, "/v1/models"),
        ),
        labels=_labels(part.service, address=part.replica.address, role=pool.role.value),
    )


def proxy_service(
    service: ServicePlan, instance: ProxyInstance, settings: ComposeTarget, *, image: str
) -> ProxyService:
    """One proxy. The folder of its routing file is mounted: a mounted file would stay the old one after a rename."""
    proxy = service.proxy
    folder = f"{settings.directory.rstrip('/')}/{service.name}"
    key = proxy.api_key
    secret = key.name if isinstance(key, FromSecret) else None
    words = ("proxy", "--config", f"{folder}/routing.json")
    entrypoint, command = _started(("disaggc",), words, [] if secret is None else [secret])
    return ProxyService(
        name=f"{service.name}-proxy-{service.proxy.instances.index(instance)}",
        image=image,
        entrypoint=entrypoint,
        command=command,
        env_files=_env_files(settings, [] if secret is None else [secret]),
        stop_s=proxy_stop_s(service),
        low_port=proxy.port < 1024,
        mounts=(folder, *([proxy.api_key_file] if proxy.api_key_file else [])),
        health=("CMD", "python3", "-c", _ASK, _url("127.0.0.1", proxy.port, "/health")),
        labels=_labels(service, address=instance.address, role="proxy"),
    )


def _started(
    program: tuple[str, ...], words: tuple[str, ...], required: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Entrypoint and command; with secrets a shell first makes sure that they are there."""
    if not required:
        return program, words
    script = required_variables(required) + RUN_ARGUMENTS
    return ("/bin/sh", "-c", script, "disaggc"), (*program, *words)


def _environment(part: EnginePart, *, linked: bool) -> tuple[tuple[str, str], ...]:
    text = host_text(part)
    out: dict[str, str] = {}
    devices = part.devices()
    # With `device_ids` the driver shows only those, numbered from 0; the variable would name others.
    if devices is not None and (linked or part.pool.vendor == "amd"):
        out[devices[0]] = devices[1]
    out |= {v.name: text(v.value) for v in part.replica.env if not isinstance(v.value, FromSecret)}
    return tuple(sorted(out.items()))


def _env_files(settings: ComposeTarget, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{settings.directory.rstrip('/')}/secrets/{name}" for name in sorted(set(names)))


def _reservation(part: EnginePart, *, linked: bool) -> Mapping[str, object] | None:
    if part.pool.vendor != "nvidia":
        return None
    which: dict[str, object] = (
        {"count": "all"} if linked else {"device_ids": [str(device) for device in part.slot.devices]}
    )
    return {"driver": "nvidia", "capabilities": ["gpu"], **which}


def _labels(service: ServicePlan, *, address: str, role: str) -> tuple[tuple[str, str], ...]:
    return (
        ("dev.disaggc.address", address),
        ("dev.disaggc.cohort", service.cohort),
        ("dev.disaggc.role", role),
        ("dev.disaggc.service", service.name),
    )


def _url(address: str, port: int, path: str) -> str:
    return f"http://{f'[{address}]' if ':' in address else address}:{port}{path}"
