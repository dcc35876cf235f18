"""Stage 1's result: the spec as the user means it, typed and frozen; knows no catalog, no defaults that need one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from disaggc.spec.cluster import Accelerator, Cluster, Fabric, Nics, NodeGroup, NumaDomain
from disaggc.spec.delivery import (
    ComposeTarget,
    KubernetesTarget,
    LocalTarget,
    Rollout,
    State,
    SystemdTarget,
    Targets,
    Watch,
)
from disaggc.spec.engine import Connector, Engine, Env, EnvValue, Model, RoleEngine, SecretRef, Settings
from disaggc.spec.names import (
    Address,
    EnvName,
    FlagName,
    HostName,
    Listed,
    Name,
    Part,
    Port,
    Scalar,
    SettingValue,
)
from disaggc.spec.service import (
    ApiKey,
    ApiKeyEnv,
    ApiKeyFile,
    ApiKeyKubernetes,
    Constraints,
    Degree,
    Guarantees,
    KubernetesSecretKey,
    Proxy,
    ProxyTimeouts,
    Service,
    ShapeChoices,
    Speculative,
)
from disaggc.spec.workload import (
    Arrivals,
    Length,
    LengthHistogram,
    LengthQuantiles,
    LengthTrace,
    Objectives,
    Tokens,
    WorkloadClass,
)

__all__ = [
    "Accelerator",
    "Address",
    "ApiKey",
    "ApiKeyEnv",
    "ApiKeyFile",
    "ApiKeyKubernetes",
    "Arrivals",
    "Cluster",
    "ComposeTarget",
    "Connector",
    "Constraints",
    "Degree",
    "Engine",
    "Env",
    "EnvName",
    "EnvValue",
    "Fabric",
    "FlagName",
    "Guarantees",
    "HostName",
    "KubernetesSecretKey",
    "KubernetesTarget",
    "Length",
    "LengthHistogram",
    "LengthQuantiles",
    "LengthTrace",
    "Listed",
    "LocalTarget",
    "Model",
    "Name",
    "Nics",
    "NodeGroup",
    "NumaDomain",
    "Objectives",
    "Part",
    "Port",
    "Proxy",
    "ProxyTimeouts",
    "RoleEngine",
    "Rollout",
    "Scalar",
    "SecretRef",
    "Service",
    "SettingValue",
    "Settings",
    "ShapeChoices",
    "Spec",
    "Speculative",
    "State",
    "SystemdTarget",
    "Targets",
    "Tokens",
    "Watch",
    "WorkloadClass",
]


class Spec(Part):
    """The whole document."""

    version: Literal[1]
    """Version of the spec language."""
    cluster: Cluster
    """What there is to serve on."""
    services: Annotated[dict[Name, Service], Field(min_length=1, max_length=64)]
    """What is served, by name."""
    optimize: Literal["throughput", "latency", "cost", "nodes"] = "throughput"
    """What the solver improves once every objective holds."""
    targets: Targets = Field(default_factory=Targets)
    """Settings of each target."""
    target: Literal["kubernetes", "systemd", "compose", "local"] | None = None
    """The target used when the command line names none."""
    state: State = Field(default_factory=State)
    """Where state is kept."""
    rollout: Rollout = Field(default_factory=Rollout)
    """How changes are rolled out."""
    watch: Watch | None = None
    """How drift is answered."""
    scenarios: dict[Name, dict[str, SettingValue]] = Field(default_factory=dict, max_length=64)
    """Named changes of the spec, dotted path -> value; the plan must hold in each of them too."""
    calibration: str | None = None
    """Calibration file beside the spec; absent means hardware priors."""
    step_times: Literal["model", "aiconfigurator"] = "model"
    """Step times where no calibration is: hardware priors, or tables of a library that measured kernels, for the
    models, accelerators and shapes it has (`pip install disaggc[aiconfigurator]`)."""


Spec.model_rebuild()
