"""What of a calibration file a spec and its plan make use of: a file that says nothing of them is never passed over."""

from __future__ import annotations

from disaggc.diagnostics import Diagnostic, warning
from disaggc.ir.plan import DeploymentPlan, Pool
from disaggc.perf.calibration_file import Calibration
from disaggc.resolve.model import ResolvedService, ResolvedSpec

_PATH = ("calibration",)
_HELP = "measure it: `disaggc calibrate --plan` prints the runs"
_SHOWN = 4


def unused_by_spec(calibration: Calibration, resolved: ResolvedSpec) -> tuple[Diagnostic, ...]:
    """DGC209 for each service none of whose accelerators the file knows with its model."""
    found = []
    for service in resolved.services:
        names = {*service.prefill.groups, *service.decode.groups, *service.colocated.groups}
        accelerators = sorted({resolved.group(name).accelerator.id for name in names})
        if any(e.model == service.model.id and e.accelerator in accelerators for e in calibration.entries):
            continue
        text = (
            f"the calibration file says nothing of `{service.name}`, {service.model.id} on "
            f"{' or '.join(accelerators)}: its predictions rest on hardware priors; it knows {_known(calibration)}"
        )
        found.append(warning("DGC209", text, _PATH, help=_HELP))
    return tuple(found)


def unused_by_plan(
    calibration: Calibration, resolved: ResolvedSpec, plan: DeploymentPlan
) -> tuple[Diagnostic, ...]:
    """DGC209 for each service that the file knows, but not in the shapes that were planned.

    What it knows of other shapes is carried to them where it holds constants at all, not only memory.
    """
    services = {service.name: service for service in resolved.services}
    found = []
    for planned in plan.services:
        service = services[planned.name]
        known = [e for e in calibration.entries if e.model == service.model.id]
        strange = [pool for pool in planned.pools if not _knows(calibration, service, pool)]
        pools = [p for p in strange if any(e.accelerator == p.accelerator for e in known)]
        if not pools:
            continue
        shapes = ", ".join(dict.fromkeys(f"{p.shape} on {p.accelerator}" for p in pools))
        sources = dict.fromkeys(
            str(shape) for p in pools for shape in calibration.shapes(service.model.id, p.accelerator)
        )
        rest = (
            f"are carried from {', '.join(sources)}, with wider ranges"
            if sources
            else "rest on hardware priors"
        )
        text = (
            f"the calibration file does not know `{service.name}` as {shapes}, as planned: those predictions "
            f"{rest}; it knows {_known(calibration)}"
        )
        found.append(warning("DGC209", text, _PATH, help=_HELP))
    return tuple(found)


def _knows(calibration: Calibration, service: ResolvedService, pool: Pool) -> bool:
    model, shape = service.model.id, pool.shape
    return (
        calibration.knows(model, pool.accelerator, shape=shape)
        or calibration.kv_tokens(model, pool.accelerator, shape=shape, role=pool.role) is not None
    )


def _known(calibration: Calibration) -> str:
    kinds = list(
        dict.fromkeys(
            f"{e.model} on {e.accelerator}{'' if e.shape is None else f' {e.shape}'}"
            for e in calibration.entries
        )
    )
    more = f" and {len(kinds) - _SHOWN} more" if len(kinds) > _SHOWN else ""
    return (", ".join(kinds[:_SHOWN]) + more) if kinds else "nothing at all"
