"""What stands in a supervisord configuration, typed and unquoted: made from the plan and placed by a template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from disaggc.emit.engine_part import EnginePart, engine_parts, host_text
from disaggc.emit.routing_file import api_key_variable, proxy_stop_s
from disaggc.ir.plan import DeploymentPlan, FromSecret, ServicePlan
from disaggc.ir.stack import StackProgram
from disaggc.resolve.hardware import LOOPBACK
from disaggc.spec.model import LocalTarget

ENGINE_PRIORITY = 100
PROXY_PRIORITY = 200
"""supervisord starts lower numbers first and stops them last."""
RETRIES = 3
DISAGGC = "disaggc"
"""Found on the search path: `disaggc local up` puts the place of its own executable in front."""
STOP_MARGIN_S = 15
PROXY_STOP_STEP_S = 3600
"""The wait for a proxy's end is whole hours: it is the last resort behind the proxy's own drain, which the routing file
changes live, and supervisord restarts a program whose wait is another one."""
SCALED_STOP_S = 30
"""Doubles that run faster than the clock finish what they have faster, too; this much is left for leaving."""


@dataclass(frozen=True, slots=True)
class Program:
    """One process. words: the whole command line. entry: what whoever starts it must know."""

    entry: StackProgram
    words: tuple[str, ...]
    priority: int
    stop_s: int
    retries: int

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        return self.entry.name


@dataclass(frozen=True, slots=True)
class Configuration:
    """The whole file."""

    stamp: str
    programs: tuple[Program, ...]


def programs(plan: DeploymentPlan, settings: LocalTarget, timings: Mapping[str, str]) -> Iterator[Program]:
    """Engines in the plan's order, then the proxies."""
    for part in engine_parts(plan):
        if settings.engine == "vllm" or part.serves:
            yield _engine(part, settings, timed=part.pool.address in timings)
    for service in plan.services:
        yield _proxy(service)


def timing_path(pool_address: str) -> str:
    """`timing/chat-prefill.json`."""
    return f"timing/{pool_address.replace('/', '-')}.json"


def scale_of(settings: LocalTarget) -> float:
    """How much faster than the clock the engines run."""
    return (settings.time_scale or 1.0) if settings.engine == "sim" else 1.0


def _engine(part: EnginePart, settings: LocalTarget, *, timed: bool) -> Program:
    text = host_text(part)
    given = {v.name: text(v.value) for v in part.replica.env if not isinstance(v.value, FromSecret)}
    devices = part.devices()
    if devices is not None and settings.engine == "vllm":
        given.setdefault(*devices)
    times = part.pool.timings
    finish = times.shutdown_s + times.worker_exit_s
    if settings.engine == "sim":
        finish = min(finish, int(finish / scale_of(settings)) + SCALED_STOP_S)
    words = _double(part, settings, timed=timed) if settings.engine == "sim" else _vllm(part)
    return Program(
        entry=StackProgram(
            name=_name(part),
            address=part.replica.address,
            kind="engine",
            executable=words[0],
            ready=_url(part.replica.ports.http, "/health") if part.serves else None,
            ports=_listened(part) if part.serves else (),
            secrets=tuple(v.name for v in part.replica.env if isinstance(v.value, FromSecret)),
            faults=_url(faults_port(part), "") if settings.engine == "sim" and part.serves else None,
        ),
        words=("env", *(f"{name}={value}" for name, value in sorted(given.items())), *words),
        priority=ENGINE_PRIORITY,
        stop_s=finish + STOP_MARGIN_S,
        retries=RETRIES,
    )


def _url(port: int, path: str) -> str:
    return f"http://{LOOPBACK}:{port}{path}"


def _listened(part: EnginePart) -> tuple[int, ...]:
    ports = part.replica.ports
    return tuple(port for port in (ports.http, ports.side_channel) if port is not None)


def _name(part: EnginePart) -> str:
    """`chat-prefill-0`; the later nodes of a replica carry their rank."""
    rank = f"-{part.slot.rank}" if part.slot.rank else ""
    return f"{part.service.name}-{part.pool_name}-{part.replica.index}{rank}"


def _vllm(part: EnginePart) -> tuple[str, ...]:
    return (part.service.engine.command or "vllm", *part.words(host_text(part)))


def _double(part: EnginePart, settings: LocalTarget, *, timed: bool) -> tuple[str, ...]:
    """The engine's own command line, and what only the double knows."""
    pool = part.pool
    table = ("--timing", timing_path(pool.address)) if timed else ()
    return (
        part.service.proxy.command or DISAGGC,
        "sim-engine",
        *part.words(host_text(part)),
        *table,
        "--time-scale",
        f"{scale_of(settings):g}",
        "--kv-tokens",
        str(pool.memory.kv_tokens * pool.shape.dp),
        "--engine-version",
        part.service.engine.version,
        "--admin-port",
        str(faults_port(part)),
    )


def faults_port(part: EnginePart) -> int:
    """Where faults are switched on in a double: the port before its block of internal ones, which it does not use."""
    return part.replica.ports.internal - 1


def _proxy(service: ServicePlan) -> Program:
    key = api_key_variable(service)
    command = service.proxy.command or DISAGGC
    proxies = len(service.proxy.instances)
    # One port of one machine is shared by workers, which also share what they count.
    workers = ("--workers", str(proxies)) if proxies > 1 else ()
    return Program(
        entry=StackProgram(
            name=f"{service.name}-proxy-0",
            address=f"{service.name}/proxy/0",
            kind="proxy",
            executable=command,
            ready=_url(service.proxy.port, "/ready"),
            ports=(service.proxy.port, service.proxy.admin_port),
            secrets=() if key is None else (key,),
        ),
        words=(command, "proxy", "--config", f"{service.name}/routing.json", *workers),
        priority=PROXY_PRIORITY,
        stop_s=PROXY_STOP_STEP_S * -(-proxy_stop_s(service) // PROXY_STOP_STEP_S),
        retries=RETRIES,
    )
