"""The parts of the routing file that say how much and how long: deadlines, sizes, ports, health, logs.

Knows nothing of replicas and policies.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator


def _is_host(text: str) -> str:
    """A name as it stands; whatever has a colon must be an IPv6 address, with or without brackets."""
    if ":" in text:
        inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        ipaddress.IPv6Address(inner)
    return text


Host = Annotated[
    str,
    StringConstraints(
        pattern=r"^(\[[0-9A-Fa-f:]{2,39}\]|[0-9A-Fa-f:]{2,39}|[A-Za-z0-9][A-Za-z0-9\-]{0,62}(\.[A-Za-z0-9][A-Za-z0-9\-]{0,62})*\.?)$",
        max_length=253,
    ),
    AfterValidator(_is_host),
]
"""A literal IPv4 or IPv6 address, or a DNS name: nothing that could carry a path, a port or user info."""
Port = Annotated[int, Field(ge=1, le=65535)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/\-]{0,252}$")]
Seconds = Annotated[float, Field(gt=0, le=1e6)]
Count = Annotated[int, Field(ge=0, le=1 << 53)]
"""Whole numbers that a float holds exactly, as the board's cells are floats."""
Positive = Annotated[int, Field(ge=1, le=1 << 53)]
FilePath = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Part(BaseModel):
    """A part of the routing file: frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Timeouts(Part):
    """Deadlines, seconds; each stage has its own, and each is inside the one around it."""

    connect_s: Seconds = 5.0
    """Opening a connection to an engine."""
    prefill_s: Seconds = 120.0
    """The whole prefill leg."""
    first_byte_s: Seconds = 120.0
    """From sending the decode leg to its first byte."""
    gap_s: Seconds = 60.0
    """Longest silence inside a running answer."""
    total_s: Seconds = 3600.0
    """A whole request."""
    handoff_s: Seconds = 20.0
    """From prefill's answer until decode must have been asked; below the KV lease."""
    queue_s: Seconds = 30.0
    """Waiting for admission."""
    client_read_s: Seconds = 30.0
    """A client sending its request: longest silence."""
    client_write_s: Seconds = 60.0
    """A client not taking its answer."""
    idle_client_s: Seconds = 75.0
    """A kept-alive client connection without a request."""
    idle_upstream_s: Seconds = 4.0
    """A pooled engine connection without a request; below the engines' keep-alive."""
    drain_s: Seconds = 300.0
    """Running requests after SIGTERM."""


class Admission(Part):
    """What may be in flight and what may wait."""

    queue: Count = 1024
    """Requests that may wait; more get 429."""
    max_requests: Positive | None = None
    """Requests in flight over the whole service; None = the sum of the decode side's sequences."""
    max_tokens: Positive | None = None
    """Tokens in flight over the whole service; None = the sum of the decode side's KV."""
    prefill_tokens: Positive | None = None
    """Prompt tokens that may wait at one prefill replica; None = not limited."""
    seqs_overcommit: Annotated[float, Field(ge=1, le=100)] = 1.0
    """Requests let in over the decode side's sequences: a request counts from admission on, also while it prefills."""
    kv_overcommit: Annotated[float, Field(ge=1, le=100)] = 1.0
    """Tokens let in over the decode side's KV: a request counts with all it will ever hold, most hold less yet."""


class Limits(Part):
    """Sizes beyond which a request is refused."""

    header_bytes: Annotated[int, Field(ge=1024, le=1 << 20)] = 32768
    """All headers of a request."""
    body_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 32 << 20
    """The body of a request."""
    connections: Positive = 16384
    """Client connections per worker; fewer where its limit of open files is below three for each."""


class ApiKeySource(Part):
    """Where the key that clients must present is found; the key itself is never in this file."""

    env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")] | None = None
    """Environment variable of the proxy."""
    file: FilePath | None = None
    """File on the proxy's host; trailing line break ignored."""

    @model_validator(mode="after")
    def _one_source(self) -> ApiKeySource:
        if (self.env is None) == (self.file is None):
            raise ValueError("an API key comes from exactly one of `env` and `file`")
        return self


class TlsFiles(Part):
    """PEM files of one TLS side."""

    certificate: FilePath | None = None
    """Own certificate chain."""
    key: FilePath | None = None
    """Its private key."""
    ca: FilePath | None = None
    """Authorities the peer is checked against; None = the system's."""


class Listen(Part):
    """Where the proxy listens."""

    host: Host = "0.0.0.0"  # noqa: S104 - the client port serves other machines; administration stays on loopback
    """Address for clients."""
    port: Port = 8000
    """Port for clients."""
    admin_host: Host = "127.0.0.1"
    """Address for administration and metrics."""
    admin_port: Port = 8001
    """Port for administration and metrics."""
    metrics_host: Host | None = None
    """Address for metrics alone, without a token, for a Prometheus elsewhere; None = only with administration."""
    metrics_port: Port = 8002
    """Port for metrics alone."""
    admin_token: ApiKeySource | None = None
    """Token administration needs; without one only a loopback `admin_host` is accepted."""
    tls: TlsFiles | None = None
    """TLS towards clients."""

    @model_validator(mode="after")
    def _admin_is_guarded(self) -> Listen:
        if self.admin_token is None and self.admin_host not in {"127.0.0.1", "::1", "localhost"}:
            raise ValueError(f"`admin_host` {self.admin_host} is not loopback, so `admin_token` is needed")
        if self.metrics_host is not None and self.metrics_port in {self.port, self.admin_port}:
            raise ValueError(f"`metrics_port` {self.metrics_port} is also that of clients or administration")
        return self


class ClassEntry(Part):
    """A workload class: requests name it in the class header."""

    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    """Higher is admitted first."""


class Health(Part):
    """How engines are watched."""

    interval_s: Seconds = 2.0
    """Between two probes of one replica."""
    timeout_s: Seconds = 2.0
    """For one probe."""
    eject_after: Positive = 3
    """Failed probes or requests in a row that take a replica out."""
    readmit_after: Positive = 2
    """Good probes in a row that take it in again."""
    open_s: Seconds = 5.0
    """How long an ejected replica rests before one request may try it."""
    canary_s: Seconds | None = None
    """Between two rounds of canary requests over prefill-decode pairs; None = none.

    A pair over which `eject_after` of them in a row moved no KV, or wrong KV, hands over nothing until `readmit_after`
    in a row were good; where no pair is left, decode prefills alone."""


class Log(Part):
    """The access log: one JSON line per request, never a prompt."""

    access: bool = True
    """Whether it is written."""
    file: FilePath | None = None
    """Where; None = standard error."""
