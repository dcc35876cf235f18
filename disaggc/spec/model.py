"""Stage 1's result: the spec as the user means it, typed and frozen; knows no catalog, no defaults that need one."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from disaggc.spec.quantities import Duration, Flops, Money, Rate, Share, Size, Speed

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$")]
"""A name that every target can carry: lower-case letters, digits and dashes, at most 40."""
HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?$")]
Address = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z:.\-]{1,253}$")]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
FlagName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.\-_]{0,79}$")]
Port = Annotated[int, Field(ge=1, le=65535)]
T = TypeVar("T")
Listed = Annotated[tuple[T, ...], Field(strict=False)]
"""A YAML list, kept as a tuple."""
Scalar = bool | int | float | str
SettingValue = Scalar | list[Scalar] | dict[str, "Scalar | list[Scalar] | dict[str, Scalar]"] | None


class Part(BaseModel):
    """A piece of the spec: frozen, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class Fabric(Part):
    """The network between nodes over which KV moves."""

    type: Literal["infiniband", "roce", "efa", "tcp"]
    """Kind of network. `tcp` has no RDMA and needs `allow_tcp: true`."""
    speed_per_nic: Speed
    """Line rate of one NIC, one direction."""
    allow_tcp: bool = False
    """Accept KV transfer over plain TCP (slow; refused otherwise)."""
    gid_index: int | None = Field(default=None, ge=0, le=255)
    """RoCE GID index for UCX and NCCL."""
    interface: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:\-]{1,15}$")] | None = None
    """Network interface for control traffic (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)."""


class Accelerator(Part):
    """The accelerators of one node: a catalog id, facts inline, or an id with single facts corrected."""

    type: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.\-]{0,39}$")] | None = None
    """Catalog id (`disaggc catalog accelerators`). Without it `vendor`, `memory`, `memory_bandwidth` and `bf16` are needed."""
    per_node: Annotated[int, Field(ge=1, le=72)]
    """Accelerators in one node."""
    vendor: Literal["nvidia", "amd"] | None = None
    """Decides devices, images and transports."""
    memory: Size | None = None
    """Physical memory of one accelerator."""
    memory_bandwidth: Speed | None = None
    """Memory bandwidth of one accelerator."""
    bf16: Flops | None = None
    """Dense bf16 peak."""
    fp8: Flops | None = None
    """Dense fp8 peak, where supported."""
    fp4: Flops | None = None
    """Dense fp4 peak, where supported."""
    link: Speed | None = None
    """Speed of the link between accelerators of one node, per accelerator, one direction."""


class Nics(Part):
    """RDMA network cards of one node."""

    per_node: Annotated[int, Field(ge=1, le=64)]
    """How many."""
    devices: Listed[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.\-]{1,32}$")]] | None = None
    """Device names for UCX_NET_DEVICES, one per NIC; unset lets UCX choose."""


class NodeGroup(Part):
    """Identical nodes."""

    hosts: dict[HostName, Address] | None = None
    """Host name -> address. Either this or `count`."""
    count: Annotated[int, Field(ge=1, le=4096)] | None = None
    """How many nodes, where their names do not matter (Kubernetes)."""
    accelerator: Accelerator
    """What one node holds."""
    nics: Nics | None = None
    """RDMA cards; absent means one for each accelerator."""
    price: Money | None = None
    """Price of one node, e.g. `24 USD/h`."""
    racks: dict[Name, Listed[HostName]] | None = None
    """Rack name -> hosts in it; KV prefers to stay inside a rack."""
    cpu_memory: Size | None = None
    """Host memory of one node; bounds /dev/shm and memory limits."""


class Cluster(Part):
    """What there is to serve on."""

    fabric: Fabric
    """The network between nodes."""
    nodes: Annotated[dict[Name, NodeGroup], Field(min_length=1)]
    """Groups of identical nodes by name."""


class Model(Part):
    """The model a service serves."""

    id: Annotated[str, StringConstraints(min_length=1, max_length=255)]
    """Hugging Face id; sizes come from the catalog, or from `config`."""
    weights: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = None
    """Path of the weights on the nodes; absent means the engine resolves `id` itself."""
    config: str | None = None
    """Path of a config.json, beside the spec; wins over the catalog."""
    revision: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    """Revision of the weights; the same on prefill and decode by construction."""
    served_name: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    """Name clients use; defaults to `id`."""


class LengthQuantiles(Part):
    """A length distribution by its moments."""

    mean: Annotated[float, Field(gt=0)]
    """Mean tokens."""
    p50: Annotated[float, Field(gt=0)] | None = None
    """Median tokens."""
    p90: Annotated[float, Field(gt=0)] | None = None
    """90th percentile."""
    p99: Annotated[float, Field(gt=0)] | None = None
    """99th percentile."""


class LengthHistogram(Part):
    """A length distribution as counts per upper bound."""

    histogram: Annotated[dict[Annotated[int, Field(gt=0)], Annotated[float, Field(ge=0)]], Field(min_length=1)]
    """Upper bound in tokens -> weight."""


class LengthTrace(Part):
    """A length distribution from a recorded trace."""

    trace: str
    """CSV or JSONL file beside the spec, with columns for input and output tokens."""


Tokens = Annotated[int, Field(gt=0, le=10_000_000)]
Length = Tokens | LengthQuantiles | LengthHistogram | LengthTrace


class Arrivals(Part):
    """How requests arrive in time."""

    cv: Annotated[float, Field(ge=0, le=100)] | None = None
    """Coefficient of variation of the time between arrivals; 1 = Poisson."""
    trace: str | None = None
    """CSV or JSONL file with arrival times; its own variability is used."""


class Objectives(Part):
    """Bounds that a percentile of the latency must keep. Absent means no bound."""

    ttft_p50: Duration | None = None
    """Median time to first token."""
    ttft_p90: Duration | None = None
    """90th percentile of the time to first token."""
    ttft_p99: Duration | None = None
    """99th percentile of the time to first token."""
    itl_p50: Duration | None = None
    """Median time between tokens."""
    itl_p90: Duration | None = None
    """90th percentile of the time between tokens."""
    itl_p99: Duration | None = None
    """99th percentile of the time between tokens."""
    e2e_p50: Duration | None = None
    """Median end-to-end latency."""
    e2e_p90: Duration | None = None
    """90th percentile of the end-to-end latency."""
    e2e_p99: Duration | None = None
    """99th percentile of the end-to-end latency."""


class WorkloadClass(Part):
    """One kind of request a service receives."""

    input_tokens: Length
    """Prompt length (ISL)."""
    output_tokens: Length
    """Generated length (OSL)."""
    rate: Rate | None = None
    """Offered load, open loop. With `concurrency` too, the client holds requests back at the cap."""
    concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Most requests in flight."""
    arrivals: Arrivals | None = None
    """Arrival variability; absent means Poisson."""
    prefix_hit: Share = 0.0
    """Share of prompt tokens found in the prefix cache."""
    objectives: Objectives = Objectives()
    """Latency bounds."""
    priority: Annotated[int, Field(ge=0, le=100)] = 0
    """Admission priority at the proxy, higher first."""


class SecretRef(Part):
    """A value that is never written: only its name is."""

    secret: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,126}$")]
    """Name of the secret: a Kubernetes Secret key, a file name under the target's secrets directory."""


Env = dict[EnvName, str | SecretRef]
Settings = dict[FlagName, SettingValue]


class RoleEngine(Part):
    """What only one role's engines get on top."""

    settings: Settings = {}
    """`vllm serve` flags without the dashes."""
    env: Env = {}
    """Environment variables."""


class Connector(Part):
    """How KV moves from prefill to decode."""

    type: Literal["nixl", "nixl-push", "mooncake", "moriio"] = "nixl"
    """Connector family; the proxy's dialect follows from it."""
    lease: Duration | Literal["auto"] = "auto"
    """How long prefill keeps KV that decode has not fetched; auto derives it from the plan."""
    load_failure: Literal["fail", "recompute"] = "fail"
    """What decode does when KV does not arrive; `fail` lets the proxy retry."""
    options: dict[str, SettingValue] = {}
    """Extra connector options, checked against the keys this version knows."""


class Engine(Part):
    """The vLLM that runs the service."""

    vllm: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+([a-z0-9.+\-]*)?$")]
    """vLLM version; flags are checked against its snapshot."""
    image: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    """Container image by digest (compose, Kubernetes)."""
    images: dict[Literal["nvidia", "amd", "cpu"], Annotated[str, StringConstraints(min_length=1, max_length=512)]] = {}
    """Image per vendor, where the cluster has several; wins over `image`."""
    command: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = None
    """Path of the vllm executable (systemd, local)."""
    settings: Settings = {}
    """Any `vllm serve` flag of this version, without the dashes; flags the compiler owns are errors here."""
    env: Env = {}
    """Environment for every engine; a value or `{secret: name}`."""
    prefill: RoleEngine = RoleEngine()
    """Additions for prefill engines."""
    decode: RoleEngine = RoleEngine()
    """Additions for decode engines."""
    connector: Connector = Connector()
    """KV transfer."""


Degree = Annotated[int, Field(ge=1, le=1024)]


class ShapeChoices(Part):
    """Which shapes the solver may use for a role; absent dimensions are the compiler's choice."""

    tp: Listed[Degree] | None = None
    """Tensor-parallel degrees to consider."""
    pp: Listed[Degree] | None = None
    """Pipeline-parallel degrees to consider."""
    dp: Listed[Degree] | None = None
    """Data-parallel degrees to consider (mixture-of-experts models)."""
    expert_parallel: bool | None = None
    """Whether experts are placed whole (`--enable-expert-parallel`)."""
    accelerators: Listed[str] | None = None
    """Accelerator types this role may use."""
    nodes: Listed[Name] | None = None
    """Node groups this role may use."""
    replicas: Annotated[int, Field(ge=0, le=4096)] | None = None
    """Exactly so many replicas; absent lets the solver choose."""


class Constraints(Part):
    """What the solver must respect."""

    mode: Literal["auto", "disaggregated", "colocated", "flexible"] = "auto"
    """auto compares both; flexible uses one pool whose roles the routing table decides."""
    prefill: ShapeChoices = ShapeChoices()
    """Limits for prefill replicas."""
    decode: ShapeChoices = ShapeChoices()
    """Limits for decode replicas."""
    colocated: ShapeChoices = ShapeChoices()
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

    file: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    """Absolute path on the proxy's host."""


class KubernetesSecretKey(Part):
    """One key of a Kubernetes Secret."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
    """Secret name."""
    key: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.\-]{1,253}$")]
    """Key in it."""


class ApiKeyKubernetes(Part):
    """API key from a Kubernetes Secret."""

    kubernetes_secret: KubernetesSecretKey
    """Where it stands."""


class Proxy(Part):
    """The bundled proxy in front of a service."""

    replicas: Annotated[int, Field(ge=1, le=64)] = 1
    """Proxy processes on different nodes."""
    port: Port = 8000
    """Port clients use."""
    api_key: ApiKeyEnv | ApiKeyFile | ApiKeyKubernetes | None = None
    """Where the key that clients must present comes from."""
    nodes: Listed[HostName] | None = None
    """Hosts that run it; absent means the first nodes of the service."""
    image: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    """Container image with disaggc, by digest (compose, Kubernetes)."""
    command: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = None
    """Path of the disaggc executable (systemd, local)."""
    policy: Literal["least-work", "power-of-two", "prefix-affinity", "round-robin"] = "least-work"
    """How a replica is chosen."""
    on_prefill_failure: Literal["retry", "decode-locally", "error"] = "retry"
    """What happens when the prefill leg fails."""


class Speculative(Part):
    """Speculative decoding; identical on prefill and decode by construction."""

    method: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_\-]{1,40}$")]
    """vLLM's method name, e.g. `eagle3`, `mtp`, `ngram`."""
    tokens: Annotated[int, Field(ge=1, le=32)]
    """Draft tokens per step."""
    acceptance: Share
    """Expected share of accepted draft tokens."""
    model: Annotated[str, StringConstraints(min_length=1, max_length=4096)] | None = None
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
    workload: Annotated[dict[Name, WorkloadClass], Field(min_length=1)]
    """Classes of requests by name."""
    engine: Engine
    """With which engine."""
    constraints: Constraints = Constraints()
    """Within which limits."""
    proxy: Proxy = Proxy()
    """Behind which proxy."""
    speculative: Speculative | None = None
    """Speculative decoding."""
    priority: Annotated[int, Field(ge=0, le=100)] = 0
    """Which service wins when not all fit, higher first."""
    guarantees: Guarantees = Guarantees()
    """Floor for this service."""


class KubernetesTarget(Part):
    """Settings of the Kubernetes target."""

    namespace: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "default"
    """Namespace of every object."""
    kube_version: Annotated[str, StringConstraints(pattern=r"^1\.\d{1,3}$")] = "1.30"
    """Server version; decides API versions and native sidecars."""
    accelerator_resource: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.\-]+/[A-Za-z0-9_.\-]+$")] | None = None
    """Extended resource of the accelerators; absent means the vendor's."""
    rdma_resource: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.\-]+/[A-Za-z0-9_.\-]+$")] | None = None
    """Extended resource of the RDMA device plugin."""
    rdma_count: Annotated[int, Field(ge=1, le=64)] = 1
    """How many of it each replica asks for."""
    service_account: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")] | None = None
    """ServiceAccount of the pods; its token is not mounted."""
    model_volume: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")] | None = None
    """PersistentVolumeClaim with the weights; absent means a hostPath at `weights`."""
    monitoring_namespace: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] | None = None
    """Namespace whose Prometheus may scrape."""
    priority_class: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")] | None = None
    """PriorityClass of the engine pods."""
    inference_pool: bool = False
    """Also emit a Gateway API InferencePool per service."""


class SystemdTarget(Part):
    """Settings of the systemd target."""

    ssh_user: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_\-]{0,31}$")] = "root"
    """User that copies units and runs systemctl."""
    run_as: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_\-]{0,31}$")] = "vllm"
    """System user the services run as."""
    directory: Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9_./\-]{0,200}$")] = "/etc/disaggc"
    """Where configuration and secrets lie on the hosts."""


class ComposeTarget(Part):
    """Settings of the compose target."""

    project: Name = "disaggc"
    """Project name on every host."""
    directory: Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9_./\-]{0,200}$")] = "/etc/disaggc"
    """Where secrets lie on the hosts."""


class Targets(Part):
    """Settings per target; only the chosen one is used."""

    kubernetes: KubernetesTarget | None = None
    """Kubernetes manifests."""
    systemd: SystemdTarget | None = None
    """systemd units."""
    compose: ComposeTarget | None = None
    """Compose files, one project per host."""


class State(Part):
    """Where the record of what was applied is kept."""

    backend: Literal["local", "kubernetes"] = "local"
    """`local` keeps it beside the spec, `kubernetes` in the cluster."""


class Rollout(Part):
    """How a change is carried out."""

    strategy: Literal["safe", "fast"] = "safe"
    """safe keeps capacity while replicas are exchanged."""
    drain_timeout: Duration | Literal["auto"] = "auto"
    """How long a replica may finish its requests; auto is the plan's p99 E2E plus a margin."""


class Watch(Part):
    """How drift is answered."""

    mode: Literal["observe", "propose", "apply"] = "propose"
    """observe only reports, propose writes a plan, apply rolls it out."""
    interval: Duration = 30.0
    """Time between scrapes."""
    cooldown: Duration = 900.0
    """Least time between two changes."""
    min_gain: Share = 0.05
    """Least predicted gain that justifies a change."""


class Spec(Part):
    """The whole document."""

    version: Literal[1]
    """Version of the spec language."""
    cluster: Cluster
    """What there is to serve on."""
    services: Annotated[dict[Name, Service], Field(min_length=1)]
    """What is served, by name."""
    optimize: Literal["throughput", "latency", "cost", "nodes"] = "throughput"
    """What the solver improves once every objective holds."""
    targets: Targets = Targets()
    """Settings of each target."""
    target: Literal["kubernetes", "systemd", "compose"] | None = None
    """The target used when the command line names none."""
    state: State = State()
    """Where state is kept."""
    rollout: Rollout = Rollout()
    """How changes are rolled out."""
    watch: Watch | None = None
    """How drift is answered."""
    scenarios: dict[Name, dict[str, SettingValue]] = {}
    """Named changes of the spec, dotted path -> value; the plan must hold in each of them too."""
    calibration: str | None = None
    """Calibration file beside the spec; absent means hardware priors."""
