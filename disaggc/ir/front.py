"""The bundled proxy of a service as the plan has it: where it runs and within which limits."""

from __future__ import annotations

from disaggc.ir.element import Because, Element, Value


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
    because: Because = ()
    """Fields of the spec that caused it."""
