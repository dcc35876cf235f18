"""Views of plans made by hand: what a reader must find, in every format, for every kind of plan."""

from __future__ import annotations

import json
import re

import pytest

from disaggc.cli.views.explain_human import explain_text
from disaggc.cli.views.explain_json import explain_document
from disaggc.cli.views.plan_human import plan_text
from disaggc.cli.views.plan_json import PlanDocument, plan_document
from disaggc.cli.views.plan_markdown import plan_markdown
from disaggc.cli.views.text import Paint, table
from disaggc.compilation import Compiled
from disaggc.diagnostics import Diagnostic, Severity
from disaggc.diagnostics.render import Report
from disaggc.ir.changes import Baseline, Change, changes
from disaggc.ir.plan import Alternative, Comparison, Prediction, Ratio
from tests.emit.plans import PLANS, expectation, five_nodes

PLAIN = Paint(on=False)


def prediction(value: float, low: float, high: float) -> Prediction:
    return Prediction(value=value, low=low, high=high, basis="prior")


def weighed(plan, **margin):
    """The plan with alternatives and a comparison."""
    service = plan.services[0]
    other = Alternative(
        mode="disaggregated",
        ratio=Ratio(prefill=2, decode=3),
        replicas=5,
        nodes=Ratio(prefill=2, decode=3),
        shapes={},
        predicted=expectation(),
        relative=prediction(0.93, 0.81, 1.04),
        metric="total_tok_per_s",
        feasible=True,
    )
    update = {
        "ratio": Ratio(prefill=1, decode=4),
        "nodes": Ratio(prefill=1, decode=4),
        "alternatives": (other,),
        "comparison": Comparison(**margin),
        "colocated": expectation(),
        "prefill_doubling_rate": 3.25,
    }
    return plan.model_copy(update={"services": (service.model_copy(update=update),)})


UNDECIDED = {
    "margin": prediction(1.07, 0.9, 1.2),
    "metric": "total_tok_per_s",
    "verdict": "undecided, calibrate",
}
DECIDED = {"margin": prediction(1.4, 1.2, 1.6), "metric": "e2e", "verdict": "decided"}


def compiled(plan, changed: tuple[Change, ...] = (), *found: Diagnostic) -> Compiled:
    return Compiled("systemd", plan, Report(found), changes=changed)


@pytest.mark.parametrize("name", sorted(PLANS))
def test_human_plan_names_every_node_and_is_plain_in_a_pipe(name):
    plan = PLANS[name]()
    text = plan_text(plan, changes(Baseline({}, {}, None), plan, {}), paint=PLAIN)
    used = {slot.node for s in plan.services for p in s.pools for r in p.replicas for slot in r.slots}
    for node in used:
        assert re.search(rf"\b{node}\b", text)
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())
    for address in ("chat/routing", "chat/proxy/0"):
        assert f"+ create  {address}" in re.sub(r" +", "  ", text).replace("+  create", "+ create")


def test_human_plan_says_ratio_margin_alternatives_and_doubling():
    text = plan_text(weighed(five_nodes(), **UNDECIDED), (), paint=PLAIN)
    assert text.startswith("chat: 1P4D  ")
    assert "against colocated: 1.07x (0.90x to 1.20x) in throughput, undecided, calibrate" in text
    assert re.search(r"2P3D\s+0\.93x \(0\.81x to 1\.04x\)  ", text)
    assert "one more prefill node pays from 3.25 requests/s" in text
    assert "basis: prior" in text
    assert "no changes" in text


def test_a_margin_in_latency_reads_as_speed():
    plan = weighed(five_nodes(), **DECIDED)
    service = plan.services[0]
    tied = service.alternatives[0].model_copy(update={"metric": "e2e"})
    plan = plan.model_copy(update={"services": (service.model_copy(update={"alternatives": (tied,)}),)})
    text = plan_text(plan, (), paint=PLAIN)
    assert "against colocated: 1.40x (1.20x to 1.60x) in e2e speed, decided" in text
    assert re.search(r"2P3D\s+0\.93x \(0\.81x to 1\.04x\) in e2e speed  ", text)
    assert "1.40x (1.20x to 1.60x) in e2e speed, decided" in plan_markdown(plan, ())


@pytest.mark.parametrize(("low", "told"), [(900.0, True), (1000.0, False)])
def test_a_rate_that_is_not_carried_at_the_cautious_end_is_told(low, told):
    plan = five_nodes()
    (service,) = plan.services
    served = service.predicted.model_copy(
        update={"bottleneck": "rate", "output_tok_per_s": prediction(1000.0, low, 1000.0)}
    )
    plan = plan.model_copy(update={"services": (service.model_copy(update={"predicted": served}),)})
    assert ("at the cautious end" in plan_text(plan, (), paint=PLAIN)) is told
    assert ("At the cautious end" in plan_markdown(plan, ())) is told


def test_undecided_is_coloured_otherwise_than_decided():
    colour = Paint(on=True)
    undecided = plan_text(weighed(five_nodes(), **UNDECIDED), (), paint=colour)
    decided = plan_text(weighed(five_nodes(), **DECIDED), (), paint=colour)
    assert "\x1b[33mundecided, calibrate\x1b[0m" in undecided
    assert "\x1b[32mdecided\x1b[0m" in decided


def test_json_plan_has_the_documented_keys():
    plan = weighed(five_nodes(), **DECIDED)
    changed = (Change("update", "chat/proxy/0", "services.chat.proxy.port", ("services.chat.proxy.port",)),)
    finding = Diagnostic("DGC204", Severity.WARNING, "nearest snapshot")
    document = json.loads(plan_document(compiled(plan, changed, finding)).text())
    assert document["schema"] == "disaggc.plan/v1"
    chat = document["services"]["chat"]
    assert chat["ratio"] == {"prefill": 1, "decode": 4}
    assert chat["nodes"] == {"prefill": 1, "decode": 4}
    assert [(p["role"], p["replicas"], p["accelerator"]) for p in chat["pools"]] == [
        ("prefill", 1, "mi300x"),
        ("decode", 4, "mi300x"),
    ]
    assert set(chat["pools"][0]["shape"]) == {"tp", "pp", "dp", "ep"}
    assert chat["pools"][1]["nodes"] == ["gpu-02", "gpu-03", "gpu-04", "gpu-05"]
    seen = chat["predicted"]["classes"]["reasoning"]
    for metric in ("ttft_ms", "itl_ms", "e2e_ms"):
        for percentile in ("p50", "p90", "p99"):
            assert set(seen[metric][percentile]) == {"value", "low", "high", "basis"}
    for key in ("output_tok_per_s", "total_tok_per_s", "tokens_per_cost", "currency"):
        assert key in chat["predicted"]
    assert chat["bottleneck"] == "decode"
    assert set(document["solver"]) == {"status", "objective", "bound", "gap", "wall_s"}
    assert document["changes"][0] == {
        "action": "update",
        "address": "chat/proxy/0",
        "cause": "services.chat.proxy.port",
        "fields": ["services.chat.proxy.port"],
    }
    assert document["diagnostics"][0]["code"] == "DGC204"
    assert PlanDocument.model_validate_json(json.dumps(document))


@pytest.mark.parametrize(
    ("code", "status"), [("DGC501", "infeasible"), ("DGC502", "not-proved"), ("DGC110", "not-run")]
)
def test_json_without_a_plan_says_why(code, status):
    document = json.loads(plan_document(compiled(None, (), Diagnostic(code, Severity.ERROR, "no"))).text())
    assert document["solver"]["status"] == status
    assert (document["services"], document["fingerprint"]) == ({}, None)


def test_markdown_cannot_be_broken_by_names():
    plan = five_nodes()
    cause = "a | b `c` <img src=x> [d](javascript:e)\n# f"
    text = plan_markdown(plan, (Change("update", "chat/proxy/0", cause, ()),))
    row = next(line for line in text.splitlines() if "chat/proxy/0" in line)
    assert len(re.findall(r"(?<!\\)\|", row)) == 4
    assert "\n# f" not in text
    assert not re.search(r"(?<!\\)[<`\[]", row)


def test_markdown_tells_latency_and_cost_as_a_reader_writes_them():
    plan = weighed(five_nodes(), **UNDECIDED)
    (service,) = plan.services
    priced = service.predicted.model_copy(
        update={"tokens_per_cost": prediction(8e6, 7e6, 9e6), "currency": "USD"}
    )
    plan = plan.model_copy(update={"services": (service.model_copy(update={"predicted": priced}),)})
    text = plan_markdown(plan, ())
    assert "\\(" not in text
    assert re.search(r"^Output .* tok/s, .* tok/USD, bottleneck decode\.$", text, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(PLANS))
def test_explain_shows_memory_and_what_binds(name):
    plan = PLANS[name]()
    text = explain_text(plan, {}, paint=PLAIN)
    assert "what binds: decode" in text
    assert "weights" in text
    document = json.loads(explain_document(compiled(plan), {}).text())
    assert document["services"]["chat"]["pools"][0]["memory"]["kv_tokens"] > 0
    assert ("KV transfer" in text) == bool(plan.services[0].links)


def test_table_aligns_and_leaves_no_trailing_blanks():
    assert table([("a", "bb", ""), ("ccc", "d", "e")]) == ["  a    bb", "  ccc  d   e"]
    assert table([]) == []
