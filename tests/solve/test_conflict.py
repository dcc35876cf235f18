from __future__ import annotations

import re

import pytest

from disaggc.diagnostics import Diagnostic, path_text
from disaggc.solve.api import solve_spec
from disaggc.solve.cpsat import Limits
from disaggc.solve.solution import Infeasible, Solution, Unproven
from tests.solve.spec_cases import CLASS, CONSTRAINTS, FIVE, TWO_VENDORS, models, solved


def refused(*sets: str, example: str = FIVE, overlay: str | None = None) -> tuple[Diagnostic, ...]:
    found = solved(example, *sets, overlay=overlay)
    assert isinstance(found, Infeasible), found
    assert all(d.code == "DGC501" for d in found.diagnostics)
    return found.diagnostics


def at(diagnostics: tuple[Diagnostic, ...], field: str) -> Diagnostic:
    return next(d for d in diagnostics if path_text(d.path).endswith(field))


def test_a_bound_no_layout_keeps_is_named_with_one_that_holds() -> None:
    found = at(refused(f"{CLASS}objectives.ttft_p90=50ms"), "ttft_p90")
    allowed = re.search(r"allow ([0-9.]+) ms", found.help or "")
    assert allowed is not None, found
    limit = float(allowed[1])
    assert limit > 50
    assert isinstance(solved(FIVE, f"{CLASS}objectives.ttft_p90={limit}ms"), Solution)
    assert isinstance(solved(FIVE, f"{CLASS}objectives.ttft_p90={limit * 0.9}ms"), Infeasible)


def test_a_rate_and_a_bound_that_exclude_each_other_are_both_named() -> None:
    found = refused(f"{CLASS}objectives.itl_p99=40ms")
    rate, bound = at(found, ".rate"), at(found, "itl_p99")
    assert "itl_p99" in " ".join(rate.notes)
    assert "concurrency" in " ".join(bound.notes)
    lower = re.search(r"`rate` ([0-9.]+)/s with `concurrency` ([0-9]+)", rate.help or "")
    assert lower is not None, rate
    again = solved(
        FIVE, f"{CLASS}objectives.itl_p99=40ms", f"{CLASS}rate={lower[1]}/s", f"{CLASS}concurrency={lower[2]}"
    )
    assert isinstance(again, Solution)


def test_nodes_that_would_help_are_counted_by_a_solve() -> None:
    sets = ("services.chat.workload.rag.rate=60/s",)
    found = at(refused(*sets, example="starter"), ".rate")
    more = re.search(r"add (\d+) nodes? to `cluster.nodes.h100`", found.help or "")
    assert more is not None, found
    grown = f"cluster.nodes.h100.count={2 + int(more[1])}"
    assert isinstance(solved("starter", *sets, grown), Solution)


def test_a_node_limit_that_is_too_low_is_named_with_the_one_that_suffices() -> None:
    found = at(refused(f"{CONSTRAINTS}max_nodes=1"), "max_nodes")
    enough = re.search(r"write `max_nodes: (\d+)`", found.help or "")
    assert enough is not None, found
    assert isinstance(solved(FIVE, f"{CONSTRAINTS}max_nodes={enough[1]}"), Solution)


@pytest.mark.parametrize("field", ["prefill.replicas=5", "spare_replicas=4"])
def test_a_count_the_cluster_has_no_room_for_is_named(field: str) -> None:
    found = refused(CONSTRAINTS + field)
    assert path_text(found[0].path).endswith(field.split("=", maxsplit=1)[0].rsplit(".", maxsplit=1)[-1])
    assert (found[0].help or "").startswith("remove `")


def test_a_shape_that_does_not_fit_says_what_takes_the_memory() -> None:
    (found,) = refused(f"{CONSTRAINTS}prefill.tp=[1]")
    assert "no prefill replica" in found.message
    assert any("weights" in note and "GiB" in note for note in found.notes)


def test_two_vendors_without_a_pair_of_one_are_refused() -> None:
    prefill = "services.assistant.constraints.prefill={tp: [4], accelerators: [mi300x]}"
    found = refused(*TWO_VENDORS, prefill, example="qwen3-235b-mixed")
    assert any("amd" in note and "nvidia" in note for d in found for note in d.notes)


def test_a_limit_that_is_too_short_is_not_called_infeasible() -> None:
    found = solve_spec(models("starter"), limits=Limits(deterministic_s=0.0))
    assert isinstance(found, Solution | Unproven)


def test_a_rate_that_is_off_by_orders_of_magnitude_is_still_what_is_blamed() -> None:
    (found,) = refused("services.chat.workload.rag.rate=9000/s", example="starter")
    assert path_text(found.path).endswith(".rate")
    assert re.search(r"lower it to `rate` [0-9.]+/s", found.help or "")
