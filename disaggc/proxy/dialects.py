"""What each KV dialect puts into the two legs. The dialect comes from the routing file, never from a guess.

NIXL pull was tried on a real vLLM; the others follow its sources and are tried on the engine double.
Pure: no sockets.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from disaggc.routing.table import Dialect, KvEndpoint, ReplicaEntry

REQUIRED: Final = ("remote_block_ids", "remote_engine_id", "remote_host", "remote_port")
"""Without these a decode engine silently prefills alone."""


class Handover(NamedTuple):
    """One prefill-decode pair for one request."""

    request_id: str
    prefill: ReplicaEntry
    decode: ReplicaEntry
    transfer: str = ""
    """Unique over all proxies; only where the dialect pairs legs by it."""


@dataclass(frozen=True)
class Protocol:
    """How one dialect runs its legs; parameters as JSON texts."""

    dialect: Dialect
    concurrent: bool
    """Decode is asked at the same time as prefill."""
    answers: bool
    """Prefill's answer carries decode's parameters."""
    keeps_only_capped: bool
    """Prefill keeps KV only when it ends by length, so stops must go."""
    prefill_params: Callable[[Handover], Mapping[str, object]]
    decode_params: Callable[[Handover], Mapping[str, object]] | None
    engine_request_id: Callable[[Handover], str] = lambda h: h.request_id
    rank_headers: bool = False
    always: Raw | None = None
    """Prefill's parameters where they are the same for every request, which then keeps its own id."""
    paired_by_id: bool = True
    """Whether engines match the legs by an id that must be unique."""


def protocol_of(dialect: Dialect) -> Protocol:
    """The protocol of a dialect; KeyError for `none`, which has no legs."""
    return _PROTOCOLS[dialect]


def handover(protocol: Protocol, request_id: str, prefill: ReplicaEntry, *, decode: ReplicaEntry) -> Handover:
    """The pair, with a transfer id of its own where legs are paired by it."""
    if not protocol.paired_by_id:
        return Handover(request_id, prefill, decode)
    transfer = secrets.token_hex(16)
    return Handover(f"{request_id}.{transfer[:12]}", prefill, decode, transfer)


def _kv(entry: ReplicaEntry) -> KvEndpoint:
    if entry.kv is None:
        raise ValueError(f"replica `{entry.address}` has no KV endpoint")
    return entry.kv


_REMOTE_DECODE: Final[Mapping[str, object]] = MappingProxyType(
    {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
)
_encode: Final = msgspec.json.Encoder().encode
_REMOTE_DECODE_VALUE: Final = Raw(_encode(dict(_REMOTE_DECODE)))


def _remote_decode(_: Handover) -> Mapping[str, object]:
    return _REMOTE_DECODE


def _push_decode(hand: Handover) -> Mapping[str, object]:
    kv = _kv(hand.prefill)
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_engine_id": kv.engine_id,
        "remote_host": kv.host,
        "remote_port": kv.side_channel_port,
        "remote_request_id": hand.request_id,
        "tp_size": hand.prefill.tp,
        "pp_size": hand.prefill.pp,
    }


def _mooncake_prefill(hand: Handover) -> Mapping[str, object]:
    return {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": f"xfer-{hand.transfer}"}


def _mooncake_decode(hand: Handover) -> Mapping[str, object]:
    kv = _kv(hand.prefill)
    host = f"[{kv.host.strip('[]')}]" if ":" in kv.host else kv.host
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_bootstrap_addr": f"http://{host}:{kv.bootstrap_port}",
        "remote_engine_id": kv.engine_id,
        "transfer_id": f"xfer-{hand.transfer}",
    }


def _moriio_remote(entry: ReplicaEntry) -> dict[str, object]:
    kv = _kv(entry)
    return {
        "remote_host": kv.host,
        "remote_handshake_port": kv.side_channel_port,
        "remote_notify_port": kv.notify_port,
        "remote_dp_size": entry.dp,
        "remote_tp_size": entry.tp,
        "remote_dp_rank": kv.dp_rank,
    }


def _moriio_prefill(hand: Handover) -> Mapping[str, object]:
    flags = {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": f"tx-{hand.transfer}"}
    return {**flags, **_moriio_remote(hand.decode)}


def _moriio_decode(hand: Handover) -> Mapping[str, object]:
    flags = {"do_remote_prefill": True, "do_remote_decode": False, "transfer_id": f"tx-{hand.transfer}"}
    return {**flags, **_moriio_remote(hand.prefill)}


def _moriio_id(hand: Handover) -> str:
    """Both ends stand in the request id; engines of before explicit parameters read them there."""

    def zmq(entry: ReplicaEntry) -> str:
        kv = _kv(entry)
        return f"host:{kv.host},handshake:{kv.side_channel_port},notify:{kv.notify_port}"

    return f"___prefill_addr_{zmq(hand.prefill)}___decode_addr_{zmq(hand.decode)}_{hand.transfer}"


_PROTOCOLS: Final[dict[Dialect, Protocol]] = {
    Dialect.NIXL: Protocol(
        dialect=Dialect.NIXL, concurrent=False, answers=True, keeps_only_capped=False,
        prefill_params=_remote_decode, decode_params=None,
        always=_REMOTE_DECODE_VALUE, paired_by_id=False,
    ),
    Dialect.NIXL_PUSH: Protocol(
        dialect=Dialect.NIXL_PUSH, concurrent=True, answers=False, keeps_only_capped=False,
        prefill_params=_remote_decode, decode_params=_push_decode, rank_headers=True,
    ),
    Dialect.MOONCAKE: Protocol(
        dialect=Dialect.MOONCAKE, concurrent=True, answers=False, keeps_only_capped=True,
        prefill_params=_mooncake_prefill, decode_params=_mooncake_decode, rank_headers=True,
    ),
    Dialect.MORIIO_READ: Protocol(
        dialect=Dialect.MORIIO_READ, concurrent=False, answers=True, keeps_only_capped=True,
        prefill_params=_moriio_prefill, decode_params=None,
        engine_request_id=_moriio_id, rank_headers=True,
    ),
    Dialect.MORIIO_WRITE: Protocol(
        dialect=Dialect.MORIIO_WRITE, concurrent=True, answers=False, keeps_only_capped=True,
        prefill_params=_moriio_prefill, decode_params=_moriio_decode, engine_request_id=_moriio_id, rank_headers=True,
    ),
}  # fmt: skip


def params_value(params: Mapping[str, object]) -> Raw:
    """The parameters as they stand in a body."""
    if params is _REMOTE_DECODE:
        return _REMOTE_DECODE_VALUE
    return Raw(_encode(params))


def params_fault(params: object, dialect: Dialect) -> str | None:
    """Why these parameters from a prefill answer cannot be used, None when they can."""
    if not isinstance(params, dict):
        return "no kv_transfer_params"
    if dialect is not Dialect.NIXL:
        return None
    missing = [name for name in REQUIRED if params.get(name) is None]
    if missing or not params.get("remote_block_ids"):
        return f"kv_transfer_params without {missing[0] if missing else 'remote_block_ids'}"
    return None if params.get("do_remote_prefill") is True else "kv_transfer_params without do_remote_prefill"
