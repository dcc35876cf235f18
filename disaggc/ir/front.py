"""The bundled proxy of a service as the plan has it: where it runs and within which limits."""

from __future__ import annotations

from disaggc.ir.element import Because, Element, Value

LEASE_CEILING_S = 300
"""The longest lease the compiler chooses: that a published deployment found necessary (aws-do-eks, a 550B model)."""
HANDOFF_SHARE = 0.6
"""Part of the KV lease in which decode must have been asked; the rest is decode's queue and the transfer itself."""


class ProxyInstance(Element):
    """One proxy process."""

    address: str
    """`service/proxy/index`."""
    node: str
    """Node it runs on."""


class Overcommit(Element):
    """What the proxy lets in beyond what decode holds at one moment, so that the planned load is never refused."""

    seqs: float = 1.0
    """Factor on the sequences of the decode side."""
    kv: float = 1.0
    """Factor on its tokens of KV."""


class Deadlines(Element):
    """How long the proxy waits for what, seconds; each stage is inside the one around it."""

    connect_s: float = 5.0
    """Opening a connection to an engine."""
    prefill_s: float = 120.0
    """The whole prefill leg."""
    handoff_s: float = 18.0
    """From prefill's answer until decode must have been asked; below the KV lease."""
    first_byte_s: float = 120.0
    """From sending the decode leg to its first byte."""
    gap_s: float = 60.0
    """Longest silence inside a running answer."""
    total_s: float = 3600.0
    """A whole request."""
    queue_s: float = 30.0
    """Waiting for admission."""


class ProxyPlan(Element):
    """The bundled proxy of a service."""

    instances: tuple[ProxyInstance, ...]
    """Where it runs."""
    port: int
    """Port for clients."""
    admin_port: int
    """Loopback port for administration and metrics."""
    metrics_port: int | None = None
    """Port for metrics alone, on the address the target gives a proxy; None = only with administration."""
    api_key: Value | None
    """Key clients must present; None = open."""
    api_key_file: str | None = None
    """File that holds the key."""
    api_key_secret: tuple[str, str] | None = None
    """Kubernetes Secret name and key."""
    image: str | None
    """Container image."""
    command: str | None
    """Executable (systemd, local)."""
    policy: str
    """Replica choice."""
    on_prefill_failure: str
    """Failure policy."""
    drain_s: int
    """How long it drains on SIGTERM; at least the engines' grace."""
    idle_s: int
    """Idle time of pooled upstream connections; below the engines' keep-alive."""
    overcommit: Overcommit = Overcommit()
    """Of admission."""
    deadlines: Deadlines = Deadlines()
    """Of requests."""
    because: Because = ()
    """Fields of the spec that caused it."""
