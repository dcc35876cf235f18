"""The complete `vllm serve` command line of one replica: every size-dependent default is said outright."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from disaggc.ir.plan import (
    Argument,
    LeaderAddress,
    Literally,
    Memory,
    NodeRank,
    OwnAddress,
    Ports,
    Role,
    Shape,
    Value,
)
from disaggc.resolve.model import ResolvedService, part_of
from disaggc.spec.model import SettingValue


@dataclass(frozen=True, slots=True)
class EngineSizes:
    """What the memory model decided and vLLM must not decide again. kv_cache_bytes: None unless measured."""

    memory: Memory
    max_num_batched_tokens: int
    block_size: int
    capture_size: int
    kv_cache_bytes: int | None


def engine_arguments(
    service: ResolvedService,
    role: Role,
    shape: Shape,
    *,
    ports: Ports,
    sizes: EngineSizes,
    nodes: int,
    shutdown_s: int,
    transfer: str | None,
) -> tuple[Argument, ...]:
    """All flags, the compiler's first by topic, then the user's sorted by name. `transfer`: kv-transfer-config JSON."""
    known = service.snapshot.flags
    own = [
        *_identity(service),
        *_endpoints(ports),
        *_parallelism(shape, nodes, ports),
        *_sizes(service, sizes),
        *_behaviour(service, shutdown_s, transfer),
    ]
    user = dict(service.settings[part_of(role)])
    kept = [a for a in own if a.flag[2:] not in user and a.flag.removeprefix("--no-") not in user]
    kept = [a for a in kept if a.flag[2:] in known or a.flag.removeprefix("--no-") in known]
    return (
        *kept,
        *(
            _user_flag(_origin(service, role, name), name, user[name])
            for name in sorted(user)
            if user[name] is not None
        ),
    )


def _flag(name: str, value: Value | str | float | None = None, **where: bool) -> Argument:
    if value is not None and not isinstance(value, Literally | OwnAddress | LeaderAddress | NodeRank):
        value = Literally(value=str(value))
    return Argument(flag=f"--{name}", value=value, **where)


def _identity(service: ResolvedService) -> Iterable[Argument]:
    yield _flag("served-model-name", service.served_name)
    if service.given.model.revision is not None:
        yield _flag("revision", service.given.model.revision)
    yield _flag("seed", 0)
    yield _flag("dtype", "auto")


def _endpoints(ports: Ports) -> Iterable[Argument]:
    # Bound to the node's own address, not to every interface: engines are not for the outside.
    yield _flag("host", OwnAddress())
    yield _flag("port", ports.http)


def _parallelism(shape: Shape, nodes: int, ports: Ports) -> Iterable[Argument]:
    yield _flag("tensor-parallel-size", shape.tp)
    yield _flag("pipeline-parallel-size", shape.pp)
    if shape.dcp > 1:
        yield _flag("decode-context-parallel-size", shape.dcp)
    if shape.dp > 1:
        local = shape.dp // nodes
        yield _flag("data-parallel-size", shape.dp)
        yield _flag("data-parallel-size-local", local)
        yield _flag("data-parallel-rpc-port", ports.dp_rpc)
        yield _flag("api-server-count", min(shape.dp, 8), first_node_only=nodes > 1)
        if nodes > 1:
            yield _flag("data-parallel-address", LeaderAddress())
            yield _flag("data-parallel-start-rank", NodeRank(times=local), other_nodes_only=True)
    elif nodes > 1:
        yield _flag("nnodes", nodes)
        yield _flag("node-rank", NodeRank())
        yield _flag("master-addr", LeaderAddress())
        yield _flag("master-port", ports.master)
    if nodes > 1:
        yield _flag("headless", other_nodes_only=True)
    if shape.ep > 1:
        yield _flag("enable-expert-parallel")


def _sizes(service: ResolvedService, sizes: EngineSizes) -> Iterable[Argument]:
    yield _flag("max-model-len", service.max_model_len)
    yield _flag("max-num-seqs", sizes.memory.sequences)
    yield _flag("max-num-batched-tokens", sizes.max_num_batched_tokens)
    yield _flag("block-size", sizes.block_size)
    yield _flag("max-cudagraph-capture-size", sizes.capture_size)
    yield _flag("kv-cache-dtype", service.kv_dtype)
    if sizes.kv_cache_bytes is not None:
        yield _flag("kv-cache-memory-bytes", sizes.kv_cache_bytes)
    else:
        yield _flag("gpu-memory-utilization", f"{service.utilisation:g}")


def _behaviour(service: ResolvedService, shutdown_s: int, transfer: str | None) -> Iterable[Argument]:
    yield _flag("enable-prefix-caching")
    yield _flag("enable-chunked-prefill")
    yield _flag("shutdown-timeout", shutdown_s)
    yield _flag("fail-on-environ-validation")
    yield _flag("enable-prompt-tokens-details")
    if transfer is not None:
        yield _flag("kv-transfer-config", transfer)
    speculative = service.given.speculative
    if speculative is not None:
        config: dict[str, object] = {
            "method": speculative.method,
            "num_speculative_tokens": speculative.tokens,
        }
        if speculative.model is not None:
            config["model"] = speculative.model
        yield _flag("speculative-config", json.dumps(config, sort_keys=True))


def _origin(service: ResolvedService, role: Role, name: str) -> str:
    """The field that set the flag: the role's own settings win over the engine's."""
    engine = service.given.engine
    own = {Role.PREFILL: engine.prefill, Role.DECODE: engine.decode}.get(role)
    where = f"engine.{role.value}" if own is not None and name in own.settings else "engine"
    return f"services.{service.name}.{where}.settings.{name}"


def _user_flag(origin: str, name: str, value: SettingValue) -> Argument:
    because = (origin,)
    match value:
        case True:
            return Argument(flag=f"--{name}", because=because)
        case False:
            return Argument(flag=f"--no-{name}", because=because)
        case list():
            first, *rest = [Literally(value=_text(item)) for item in value] or [Literally(value="")]
            return Argument(flag=f"--{name}", value=first, more=tuple(rest), because=because)
        case dict():
            return Argument(
                flag=f"--{name}", value=Literally(value=json.dumps(value, sort_keys=True)), because=because
            )
        case _:
            return Argument(flag=f"--{name}", value=Literally(value=_text(value)), because=because)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)
