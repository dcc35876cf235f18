from __future__ import annotations

import pytest

from tests.spec.loading import changed, loaded, said

END = "      vllm: 0.33.0\n"


def with_scenario(line: str) -> str:
    return changed((END, f"{END}scenarios:\n  peak:\n    {line}\n"))


def test_a_scenario_is_the_spec_with_one_value_changed() -> None:
    outcome = loaded(with_scenario("services.chat.workload.rag.rate: 4/s"))
    assert outcome.diagnostics == ()
    assert outcome.value is not None
    peak = outcome.value.scenarios["peak"]
    assert peak.services["chat"].workload["rag"].rate == 4.0
    assert outcome.value.spec.services["chat"].workload["rag"].rate == 2.0
    assert peak.cluster == outcome.value.spec.cluster


@pytest.mark.parametrize(
    ("line", "place", "words"),
    [
        ("services.chat.workload.rag.rate: 4", "DGC113 20:38", "no unit"),
        ("services.chat.workload.rag.rte: 4/s", "DGC110 20:5", "`rte`"),
        ("services.chat.workload.rag: {}", "DGC115 20:5", "workload classes only"),
        ("services.chat.engine.vllm: 0.32.0", "DGC115 20:5", "workload classes only"),
        ("cluster.nodes.big.count: 9", "DGC115 20:5", "workload classes only"),
        ("services.chat.workload.code.rate: 4/s", "DGC115 20:5", "does not exist"),
        ("services.code.workload.rag.rate: 4/s", "DGC115 20:5", "does not exist"),
        ("services..chat: 4/s", "DGC115 20:5", "not a dotted path"),
        ("services.chat.workload.rag.rate.x: 4/s", "DGC115 20:5", "a single value"),
        ('"services.chat.workload.rag.input_tokens' + ".x" * 70 + '": 4', "DGC115 20:5", "75 keys"),
        ("services.chat.workload.rag.rate: null", "DGC111 12:7", "neither `rate` nor `concurrency`"),
        (
            "services.chat.workload.rag.input_tokens: {mean: 5.0, p50: 9.0, p90: 3.0}",
            "DGC115 20:63",
            "above `p90`",
        ),
    ],
)
def test_a_scenario_that_does_not_hold(line: str, place: str, words: str) -> None:
    outcome = loaded(with_scenario(line))
    assert said(outcome) == [place]
    assert words in outcome.diagnostics[0].message


def test_a_finding_of_a_scenario_says_which() -> None:
    [finding] = loaded(with_scenario("services.chat.workload.rag.rate: 4")).diagnostics
    assert finding.notes == ("with scenario `peak` applied",)


def test_a_mistake_of_the_spec_itself_is_not_repeated_for_each_scenario() -> None:
    text = with_scenario("services.chat.workload.rag.output_tokens: 7").replace("10.0.0.2}", "10.0.0.1}")
    assert said(loaded(text)) == ["DGC115 6:33"]
