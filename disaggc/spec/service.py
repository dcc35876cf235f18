"""One service: its model, traffic, engine, limits and proxy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from disaggc.spec.engine import Engine, Model
from disaggc.spec.names import (
    EnvName,
    HostName,
    ImageText,
    KubeKey,
    KubeName,
    Listed,
    Method,
    Name,
    Part,
    PathText,
    Port,
)
from disaggc.spec.quantities import Duration, Rate, Share
from disaggc.spec.workload import WorkloadClass

Degree = Annotated[int, Field(ge=1, le=1024)]
Degrees = Annotated[Listed[Degree], Field(max_length=64)]


class ShapeChoices(Part):
    """Which shapes the solver may use for a role; absent dimensions are the compiler's choice."""

    tp: Degrees | None = None
    """Tensor-parallel degrees to consider."""
    pp: Degrees | None = None
    """Pipeline-parallel degrees to consider."""
    dp: Degrees | None = None
    """Data-parallel degrees to consider (mixture-of-experts models)."""
    dcp: Degrees | None = None
    """Decode-context-parallel degrees to consider: ranks that would hold copies of the KV share it; absent means 1."""
    expert_parallel: bool | None = None
    """Whether experts are placed whole (`--enable-expert-parallel`)."""
    accelerators: Annotated[Listed[str], Field(max_length=64)] | None = None
    """Accelerator types this role may use."""
    nodes: Annotated[Listed[Name], Field(max_length=64)] | None = None
    """Node groups this role may use."""
    replicas: Annotated[int, Field(ge=0, le=4096)] | None = None
    """Exactly so many replicas; absent lets the solver choose."""


class Constraints(Part):
    """What the solver must respect."""

    mode: Literal["auto", "disaggregated", "colocated", "flexible"] = "auto"
    """auto compares both; flexible uses one pool whose roles the routing table decides."""
    prefill: ShapeChoices = Field(default_factory=ShapeChoices)
    """Limits for prefill replicas."""
    decode: ShapeChoices = Field(default_factory=ShapeChoices)
    """Limits for decode replicas."""
    colocated: ShapeChoices = Field(default_factory=ShapeChoices)
    """Limits for colocated replicas; absent means those of decode."""
    spare_replicas: Annotated[int, Field(ge=0, le=64)] = 0
    """Replicas per role that may fail with the objectives still met."""
    max_nodes: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Most nodes this service may take."""


class ApiKeyEnv(Part):
    """API key from an environment variable of the proxy."""

    env: EnvName
    """Name of the variable."""


class ApiKeyFile(Part):
    """API key from a file."""

    file: PathText
    """Absolute path on the proxy's host."""


class KubernetesSecretKey(Part):
    """One key of a Kubernetes Secret."""

    name: KubeName
    """Secret name."""
    key: KubeKey
    """Key in it."""


class ApiKeyKubernetes(Part):
    """API key from a Kubernetes Secret."""

    kubernetes_secret: KubernetesSecretKey
    """Where it stands."""


def _api_key_branch(value: object) -> str | None:
    if isinstance(value, dict):
        return next((f"<{key}>" for key in ("env", "file", "kubernetes_secret") if key in value), None)
    branches: dict[type, str] = {
        ApiKeyEnv: "<env>",
        ApiKeyFile: "<file>",
        ApiKeyKubernetes: "<kubernetes_secret>",
    }
    return branches.get(value.__class__)


ApiKey = Annotated[
    Annotated[ApiKeyEnv, Tag("<env>")]
    | Annotated[ApiKeyFile, Tag("<file>")]
    | Annotated[ApiKeyKubernetes, Tag("<kubernetes_secret>")],
    Discriminator(
        _api_key_branch,
        custom_error_type="api_key",
        custom_error_message="one of `{env: NAME}`, `{file: PATH}` or `{kubernetes_secret: {name, key}}` is wanted",
    ),
]


Deadline = Annotated[Duration, Field(ge=0.001, le=604800)]


class ProxyTimeouts(Part):
    """How long the proxy waits for what; absent means the compiler's choice, from what the plan predicts."""

    connect: Deadline | None = None
    """Opening a connection to an engine."""
    prefill: Deadline | None = None
    """The prefill leg of a request, the prefill engine's queue included."""
    handoff: Deadline | None = None
    """From prefill's answer until decode must have been asked; below the lease."""
    first_byte: Deadline | None = None
    """From asking decode until the first byte of its answer."""
    gap: Deadline | None = None
    """The longest silence inside a running answer."""
    total: Deadline | None = None
    """A whole request."""
    queue: Deadline | None = None
    """Waiting for admission."""


class Proxy(Part):
    """The bundled proxy in front of a service."""

    replicas: Annotated[int, Field(ge=1, le=64)] = 1
    """Proxy processes on different nodes."""
    port: Port = 8000
    """Port clients use."""
    api_key: ApiKey | None = None
    """Where the key that clients must present comes from."""
    nodes: Annotated[Listed[HostName], Field(max_length=64)] | None = None
    """Hosts that run it; absent means the first nodes of the service."""
    image: ImageText | None = None
    """Container image with disaggc, by digest (compose, Kubernetes)."""
    command: PathText | None = None
    """Path of the disaggc executable (systemd, local)."""
    policy: Literal["least-work", "power-of-two", "prefix-affinity", "round-robin"] = "least-work"
    """How a replica is chosen."""
    on_prefill_failure: Literal["retry", "decode-locally", "error"] = "retry"
    """What happens when the prefill leg fails."""
    timeouts: ProxyTimeouts = Field(default_factory=ProxyTimeouts)
    """How long it waits for what."""


class Speculative(Part):
    """Speculative decoding; identical on prefill and decode by construction."""

    method: Method
    """vLLM's method name, e.g. `eagle3`, `mtp`, `ngram`."""
    tokens: Annotated[int, Field(ge=1, le=32)]
    """Draft tokens per step."""
    acceptance: Share
    """Expected share of accepted draft tokens."""
    model: PathText | None = None
    """Draft model, where the method needs one."""


class Guarantees(Part):
    """What a service gets before others when the cluster is shared."""

    nodes: Annotated[int, Field(ge=0, le=4096)] | None = None
    """At least so many nodes."""
    rate: Rate | None = None
    """At least this rate is served."""


class Service(Part):
    """One model with its traffic."""

    model: Model
    """What is served."""
    workload: Annotated[dict[Name, WorkloadClass], Field(min_length=1, max_length=64)]
    """Classes of requests by name."""
    engine: Engine
    """With which engine."""
    constraints: Constraints = Field(default_factory=Constraints)
    """Within which limits."""
    proxy: Proxy = Field(default_factory=Proxy)
    """Behind which proxy."""
    speculative: Speculative | None = None
    """Speculative decoding."""
    priority: Annotated[int, Field(ge=0, le=100)] = 0
    """Which service wins when not all fit, higher first."""
    guarantees: Guarantees = Field(default_factory=Guarantees)
    """Floor for this service."""
