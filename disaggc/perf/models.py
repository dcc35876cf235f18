"""The performance models of one resolved spec, each built once: step times, constants and memory.

The first argument of every prediction. Holds what would otherwise be computed again for each of a hundred layouts.
"""

from __future__ import annotations

from disaggc.diagnostics import Diagnostic, Outcome, error, has_errors, warning
from disaggc.ir.plan import Role, Shape
from disaggc.perf.aiconfigurator import Aiconfigurator, informed
from disaggc.perf.calibration_file import Calibration, read_calibration
from disaggc.perf.calibration_use import unused_by_spec
from disaggc.perf.constants import Constants, latin_draws
from disaggc.perf.engine_model import EngineModel, StepTimes
from disaggc.perf.informed import Replica, constants_with
from disaggc.perf.memory import Fit, MemoryDemand, NoFit, fit
from disaggc.perf.priors import prior_constants
from disaggc.perf.step_table import StepTable
from disaggc.perf.work import linked_accelerators, work_of
from disaggc.resolve.model import NodeGroupFacts, ResolvedService, ResolvedSpec

DRAWS = 24
"""Sets of constants at which two layouts are compared."""


class Models:
    """Built once per resolved spec (`Models.of`) and passed along."""

    def __init__(
        self,
        resolved: ResolvedSpec,
        calibration: Calibration | None,
        library: Aiconfigurator | None = None,
    ) -> None:
        self.resolved, self.calibration, self.library = resolved, calibration, library
        self.draws = latin_draws(DRAWS)
        self._constants: dict[tuple[str, str, Shape], Constants] = {}
        self._engines: dict[tuple[str, str, Shape], EngineModel] = {}
        self._drawn: dict[tuple[str, str, Shape], tuple[StepTimes, ...]] = {}
        self._fits: dict[tuple[int, str, Role, Shape], tuple[ResolvedService, Fit | NoFit]] = {}

    @classmethod
    def of(cls, resolved: ResolvedSpec) -> Outcome[Models]:
        """Models for a spec; a calibration file that is bad is DGC206, one without use DGC209, no library DGC207."""
        library, found = _library(resolved)
        if resolved.calibration is None:
            return Outcome(None if has_errors(found) else cls(resolved, None, library), found)
        read = read_calibration(resolved.calibration)
        found = (*read.diagnostics, *found)
        if read.failed or has_errors(found):
            return Outcome(None, found)
        if read.value is not None:
            found = (*found, *unused_by_spec(read.value, resolved))
        return Outcome(cls(resolved, read.value, library), found)

    def constants(self, service: ResolvedService, group: NodeGroupFacts, shape: Shape) -> Constants:
        """Priors or tables, with what the calibration file knows of this model and accelerator in their place."""
        key = (service.name, group.name, shape)
        if key not in self._constants:
            self._constants[key] = self._known(service, group, shape)
        return self._constants[key]

    def _known(self, service: ResolvedService, group: NodeGroupFacts, shape: Shape) -> Constants:
        table = self._table(service, group, shape)
        own = self._plain(service, group, shape, table=table)
        if self.calibration is None:
            return own.constants

        def other(of: Shape) -> EngineModel | None:
            """Another shape without the file; on tables where this one is, and None where they do not have it."""
            if table is None or self.library is None:
                return self._plain(service, group, of, table=None)
            found = self.library.table(service, group, of)
            return self._plain(service, group, of, table=found) if isinstance(found, StepTable) else None

        return constants_with(self.calibration, Replica(service, group.accelerator.id, shape, own, other))

    def _plain(
        self, service: ResolvedService, group: NodeGroupFacts, shape: Shape, *, table: StepTable | None
    ) -> EngineModel:
        """One replica as it is without the calibration file."""
        crosses = shape.tp * shape.dp > max(group.per_node, linked_accelerators(group))
        constants = prior_constants(group.accelerator, self.resolved.fabric, crosses_nodes=crosses)
        if table is not None and self.library is not None:
            constants = informed(constants, self.library.source)
        return EngineModel(work_of(service, group, shape), constants, table)

    def _table(self, service: ResolvedService, group: NodeGroupFacts, shape: Shape) -> StepTable | None:
        """Measured step times, unless the calibration file knows this replica: that is the user's own engine."""
        if self.library is None:
            return None
        known = self.calibration is not None and self.calibration.knows(
            service.model.id, group.accelerator.id, shape=shape
        )
        found = None if known else self.library.table(service, group, shape)
        return found if isinstance(found, StepTable) else None

    def engine(self, service: ResolvedService, group: NodeGroupFacts, shape: Shape) -> EngineModel:
        """Step times of one replica."""
        key = (service.name, group.name, shape)
        if key not in self._engines:
            self._engines[key] = EngineModel(
                work_of(service, group, shape),
                self.constants(service, group, shape),
                self._table(service, group, shape),
            )
        return self._engines[key]

    def drawn(self, service: ResolvedService, group: NodeGroupFacts, shape: Shape) -> tuple[StepTimes, ...]:
        """Step times of one replica at each of the shared draws."""
        key = (service.name, group.name, shape)
        if key not in self._drawn:
            engine = self.engine(service, group, shape)
            self._drawn[key] = tuple(engine.drawn(scores) for scores in self.draws)
        return self._drawn[key]

    def memory(
        self, service: ResolvedService, group: NodeGroupFacts, role: Role, *, shape: Shape
    ) -> Fit | NoFit:
        """Memory of one replica under the service's lengths, before its load is known."""
        key = (id(service), group.name, role, shape)
        if key not in self._fits:
            seen = self.seen_kv_tokens(service, group, role, shape=shape)
            demand = MemoryDemand(service.classes, seen_tokens=seen)
            sized = fit(service, group, role, shape=shape, demand=demand)
            self._fits[key] = (service, sized)
        return self._fits[key][1]

    def seen_kv_tokens(
        self, service: ResolvedService, group: NodeGroupFacts, role: Role, *, shape: Shape
    ) -> int | None:
        """KV tokens that an engine of this kind was found to have; None where the calibration file does not say."""
        if self.calibration is None:
            return None
        return self.calibration.kv_tokens(service.model.id, group.accelerator.id, shape=shape, role=role)


def _library(resolved: ResolvedSpec) -> tuple[Aiconfigurator | None, tuple[Diagnostic, ...]]:
    """The library the spec asks for, and what it cannot answer."""
    if resolved.spec.step_times == "model":
        return None, ()
    path = ("step_times",)
    library = Aiconfigurator.installed()
    if library is None:
        text = "`step_times: aiconfigurator` asks for a library that is not installed here"
        how = "`pip install 'disaggc[aiconfigurator]'` (Linux on x86-64), or leave `step_times` out"
        return None, (error("DGC207", text, path, help=how),)
    pairs = {
        (service.name, group.accelerator.id): library.unknown(service, group)
        for service in resolved.services
        for group in resolved.groups
    }
    return library, tuple(
        warning(
            "DGC208",
            f"{library.source} {why}: step times of `{name}` on {accelerator} are hardware priors",
            path,
            help="measure it: `disaggc calibrate --plan` prints the runs",
        )
        for (name, accelerator), why in pairs.items()
        if why is not None
    )
