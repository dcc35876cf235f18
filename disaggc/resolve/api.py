"""Stage 2's entry: a loaded spec and the catalog in, every reference bound and every default filled out."""

from __future__ import annotations

from disaggc.catalog.load import Catalog, Fact
from disaggc.diagnostics import Diagnostic, Outcome, error, has_errors
from disaggc.resolve.digest import spec_digest
from disaggc.resolve.hardware import missing_addresses, on_this_machine, resolve_fabric, resolve_groups
from disaggc.resolve.model import CalibrationSource, ResolvedService, ResolvedSpec, Scenario
from disaggc.resolve.services import Binder
from disaggc.resolve.traffic import TraceFiles
from disaggc.spec.files import Reader, Unreadable, decode, read_file
from disaggc.spec.load import LoadedSpec

CALIBRATION_LIMIT = 16 * 2**20
"""Largest calibration file that is read, in bytes."""


def resolve(loaded: LoadedSpec, catalog: Catalog, *, read: Reader = read_file) -> Outcome[ResolvedSpec]:
    """The spec with its facts, or every reference that cannot be bound (DGC1xx, 2xx, 604), not yet placed."""
    spec = loaded.spec
    groups = resolve_groups(spec.cluster, catalog)
    if spec.target == "local" and groups.value is not None:
        groups = Outcome(on_this_machine(groups.value), groups.diagnostics)
    found: list[Diagnostic] = list(groups.diagnostics)
    if spec.target in ("systemd", "compose"):
        found += missing_addresses(spec.cluster, spec.target)
    traces = TraceFiles(read, loaded.beside)
    binder = Binder(catalog, groups.value or (), read, loaded.beside, traces)
    bound: dict[str, list[ResolvedService] | None] = {}
    for name, service in spec.services.items():
        variants = {scenario: other.services[name] for scenario, other in loaded.scenarios.items()}
        bound[name] = binder.bind(name, service, variants)
    calibration = _calibration(loaded, read)
    found += [
        *traces.findings,
        *(binder.findings if groups.value is not None else _not_about_groups(binder.findings)),
    ]
    found += calibration.diagnostics
    complete = [services for services in bound.values() if services is not None]
    if groups.value is None or len(complete) < len(bound) or has_errors(found):
        return Outcome(None, tuple(found))
    fabric = resolve_fabric(spec.cluster, catalog)
    facts: list[Fact] = [fabric, *(group.accelerator for group in groups.value)]
    facts += [fact for services in complete for fact in (services[0].model, services[0].snapshot)]
    resolved = ResolvedSpec(
        spec=spec,
        services=tuple(services[0] for services in complete),
        scenarios=tuple(
            Scenario(name, tuple(services[number] for services in complete))
            for number, name in enumerate(loaded.scenarios, 1)
        ),
        groups=groups.value,
        fabric=fabric,
        target=spec.target,
        calibration=calibration.value,
        spec_digest=spec_digest(spec, traces.digests),
        catalog_digest=catalog.digest(facts),
    )
    return Outcome(resolved, tuple(found))


def _not_about_groups(findings: list[Diagnostic]) -> list[Diagnostic]:
    """Without what would only follow from an unknown accelerator."""
    return [finding for finding in findings if finding.code not in ("DGC114", "DGC115", "DGC116")]


def _calibration(loaded: LoadedSpec, read: Reader) -> Outcome[CalibrationSource]:
    name = loaded.spec.calibration
    if name is None:
        return Outcome(None)
    path = ("calibration",)
    where = loaded.beside(path, name)
    content = read(where, CALIBRATION_LIMIT)
    text = decode(content) if isinstance(content, bytes) else content
    if isinstance(text, Unreadable):
        return Outcome(
            None, (error("DGC206", f"calibration `{name[:80]}`: {text.message}", path, help=text.help),)
        )
    return Outcome(CalibrationSource(str(where), text))
