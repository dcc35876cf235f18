"""The part of the spec that says what is served and with which engine; knows no flag snapshot."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from disaggc.spec.names import (
    EnvName,
    FlagName,
    ImageText,
    ModelId,
    Part,
    PathText,
    SecretName,
    SettingValue,
    Version,
)
from disaggc.spec.quantities import DurationOrAuto


class Model(Part):
    """The model a service serves."""

    id: ModelId
    """Hugging Face id; sizes come from the catalog, or from `config`."""
    weights: PathText | None = None
    """Path of the weights on the nodes; absent means the engine resolves `id` itself."""
    config: str | None = None
    """Path of a config.json, beside the spec; wins over the catalog."""
    revision: ModelId | None = None
    """Revision of the weights; the same on prefill and decode by construction."""
    served_name: ModelId | None = None
    """Name clients use; defaults to `id`."""


class SecretRef(Part):
    """A value that is never written: only its name is."""

    secret: SecretName
    """Name of the secret: a Kubernetes Secret key, a file name under the target's secrets directory."""


EnvValue = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[SecretRef, Tag("<secret>")],
    Discriminator(lambda value: "<secret>" if isinstance(value, dict | SecretRef) else "<text>"),
]
Env = dict[EnvName, EnvValue]
Settings = dict[FlagName, SettingValue]


class RoleEngine(Part):
    """What only one role's engines get on top."""

    settings: Settings = Field(default_factory=dict)
    """`vllm serve` flags without the dashes."""
    env: Env = Field(default_factory=dict)
    """Environment variables."""


class Connector(Part):
    """How KV moves from prefill to decode."""

    type: Literal["nixl", "nixl-push", "mooncake", "moriio"] = "nixl"
    """Connector family; the proxy's dialect follows from it."""
    lease: DurationOrAuto = "auto"
    """How long prefill keeps KV that decode has not fetched; auto derives it from the plan."""
    load_failure: Literal["fail", "recompute"] = "fail"
    """What decode does when KV does not arrive; `fail` lets the proxy retry."""
    options: dict[str, SettingValue] = Field(default_factory=dict)
    """Extra connector options, checked against the keys this version knows."""


class Engine(Part):
    """The vLLM that runs the service."""

    vllm: Version
    """vLLM version; flags are checked against its snapshot."""
    image: ImageText | None = None
    """Container image by digest (compose, Kubernetes)."""
    images: dict[Literal["nvidia", "amd", "cpu"], ImageText] = Field(default_factory=dict)
    """Image per vendor, where the cluster has several; wins over `image`."""
    command: PathText | None = None
    """Path of the vllm executable (systemd, local)."""
    settings: Settings = Field(default_factory=dict)
    """Any `vllm serve` flag of this version, without the dashes; flags the compiler owns are errors here."""
    env: Env = Field(default_factory=dict)
    """Environment for every engine; a value or `{secret: name}`."""
    prefill: RoleEngine = Field(default_factory=RoleEngine)
    """Additions for prefill engines."""
    decode: RoleEngine = Field(default_factory=RoleEngine)
    """Additions for decode engines."""
    connector: Connector = Field(default_factory=Connector)
    """KV transfer."""
