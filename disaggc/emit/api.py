"""The one entrance: a plan and the chosen target become artifacts. Chooses the emitter; knows no format itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from disaggc.diagnostics.model import Outcome
from disaggc.emit.artifacts import ArtifactSet
from disaggc.emit.compose.emission import emit_compose
from disaggc.emit.kubernetes.emission import emit_kubernetes
from disaggc.emit.local.emission import emit_local
from disaggc.emit.pack import TargetKind, load_pack
from disaggc.emit.systemd.emission import emit_systemd
from disaggc.ir.plan import DeploymentPlan
from disaggc.spec.model import ComposeTarget, KubernetesTarget, LocalTarget, SystemdTarget

TargetSettings = KubernetesTarget | SystemdTarget | ComposeTarget | LocalTarget


@dataclass(frozen=True, slots=True)
class TargetChoice:
    """The target and its settings; the settings' type decides which it is."""

    settings: TargetSettings
    timings: Mapping[str, str] = field(default_factory=dict)
    """Step-time tables of the engine doubles, by pool address; only target local uses them."""

    @property
    def kind(self) -> TargetKind:
        """Name of the target."""
        match self.settings:
            case SystemdTarget():
                return "systemd"
            case ComposeTarget():
                return "compose"
            case KubernetesTarget():
                return "kubernetes"
            case LocalTarget():
                return "local"


def emit(plan: DeploymentPlan, target: TargetChoice) -> Outcome[ArtifactSet]:
    """All files of the target; routing files have the first number, see `numbering`."""
    pack = load_pack(target.kind)
    match target.settings:
        case SystemdTarget():
            return emit_systemd(plan, target.settings, pack)
        case ComposeTarget():
            return emit_compose(plan, target.settings, pack)
        case KubernetesTarget():
            return emit_kubernetes(plan, target.settings, pack)
        case LocalTarget():
            return emit_local(plan, target.settings, pack, timings=target.timings)
