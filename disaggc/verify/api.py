"""Verifies a plan: its own consistency by the plan rules, its claims against spec and facts by recomputation.

Believes nothing the plan says about itself. Knows no solver; a plan read from a file is checked the same way.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Diagnostic, error
from disaggc.ir.plan import DeploymentPlan
from disaggc.perf.models import Models
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.checking import check_plan
from disaggc.verify.claims import broken_claims
from disaggc.verify.counts import broken_counts
from disaggc.verify.deadlines import short_deadlines
from disaggc.verify.places import broken_places
from disaggc.verify.sizes import broken_sizes


def verify(plan: DeploymentPlan, resolved: ResolvedSpec) -> tuple[Diagnostic, ...]:
    """Everything that is wrong with a plan; empty for a sound one. Never raises on a plan that has the right form."""
    found = [*check_plan(plan, resolved), *_services(plan, resolved), *broken_places(plan, resolved)]
    models = Models.of(resolved)
    if models.value is None:
        return (*found, *models.diagnostics)
    for planned in plan.services:
        service = next((s for s in resolved.services if s.name == planned.name), None)
        if service is None:
            continue
        found.extend(broken_counts(planned, service, resolved))
        found.extend(short_deadlines(planned, service))
        sizes = list(broken_sizes(planned, service, models.value))
        found.extend(sizes)
        if not sizes:
            found.extend(broken_claims(planned, service, models.value))
    return tuple(found)


def _services(plan: DeploymentPlan, resolved: ResolvedSpec) -> Iterator[Diagnostic]:
    """DGC540: exactly the spec's services, each once."""
    planned = [service.name for service in plan.services]
    wanted = [service.name for service in resolved.services]
    for name in wanted:
        if planned.count(name) != 1:
            yield error(
                "DGC540",
                f"the plan has `{name}` {planned.count(name)} times, the spec once",
                ("services", name),
            )
    for name in dict.fromkeys(planned):
        if name not in wanted:
            yield error("DGC540", f"the plan has `{name}`, which the spec does not know", ("services",))
