from __future__ import annotations

import pytest

from disaggc.diagnostics import Diagnostic, Severity, error, warning
from disaggc.spec.load import place
from disaggc.spec.suppressions import Suppressions, apply_suppressions, find_suppressions
from disaggc.spec.yaml_source import parse
from tests.spec.loading import changed, loaded, place_of

RATE = ("services", "chat", "workload", "rag", "rate")


def suppressions(text: str) -> Suppressions:
    outcome = parse(text, "disaggc.yaml")
    assert outcome.value is not None
    return find_suppressions(outcome.value)


def after(text: str, *diagnostics: Diagnostic, suppressible: frozenset[str] = frozenset()) -> list[str]:
    outcome = loaded(text)
    assert outcome.value is not None, outcome.diagnostics
    placed = place(diagnostics, outcome.value.sources)
    left = apply_suppressions(placed, outcome.value.suppressions, suppressible_errors=suppressible)
    return [place_of(diagnostic) for diagnostic in left]


def with_comment(comment: str) -> str:
    return changed(("rate: 2/s", f"rate: 2/s  {comment}"))


def test_a_comment_silences_its_own_line() -> None:
    text = with_comment("# disaggc: ignore[DGC204] pinned on purpose")
    assert after(text, warning("DGC204", "x", RATE)) == []
    assert after(text, warning("DGC204", "x", (*RATE[:-1], "input_tokens"))) == [
        "DGC204 13:23",
        "DGC130 15:20",
    ]


def test_a_comment_on_its_own_line_silences_the_next_one() -> None:
    text = changed(
        (
            "        rate: 2/s",
            "        # disaggc: ignore[engine-version-nearest] fine\n\n        # more words\n        rate: 2/s",
        )
    )
    assert after(text, warning("DGC204", "x", RATE)) == []


def test_two_codes_and_two_comments_for_one_line() -> None:
    text = changed(
        (
            "        rate: 2/s",
            "        # disaggc: ignore[DGC502] a\n        rate: 2/s  # disaggc: ignore[DGC204, DGC206] b",
        )
    )
    found = (warning("DGC204", "x", RATE), warning("DGC206", "x", RATE), warning("DGC502", "x", RATE))
    assert after(text, *found) == []
    assert after(text, *found[:2]) == ["DGC130 15:9"]


def test_an_error_stays_unless_its_rule_allows() -> None:
    text = with_comment("# disaggc: ignore[DGC206] fine")
    assert after(text, error("DGC206", "x", RATE)) == ["DGC206 15:15"]
    assert after(text, error("DGC206", "x", RATE), suppressible=frozenset({"DGC206"})) == []


def test_an_error_that_stays_says_why() -> None:
    found = suppressions("a: 1  # disaggc: ignore[DGC206] fine\n")
    placed = Diagnostic("DGC206", Severity.ERROR, "x", span=found.found[0].span)
    [left] = apply_suppressions([placed], found)
    assert left.notes == ("an error of this kind cannot be suppressed",)


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("# disaggc: ignore[DGC204]", "no reason"),
        ("# disaggc: ignore[DGC204]   ", "no reason"),
        ("# disaggc: ignore", "no code"),
        ("# disaggc: ignore DGC204 because", "no code"),
        ("# disaggc: ignore[] because", "no code"),
        ("# disaggc: ignore[204] because", "`204` is not a code"),
        ("# disaggc: ignore[DGC204 because", "no code"),
    ],
)
def test_a_comment_without_code_or_reason(comment: str, words: str) -> None:
    found = suppressions(f"a: 1  {comment}\n")
    assert found.found == ()
    [finding] = found.findings
    assert (finding.code, finding.severity) == ("DGC131", Severity.ERROR)
    assert words in finding.message
    assert place_of(finding) == "DGC131 1:7"


def test_an_unknown_code_is_named_with_the_nearest() -> None:
    found = suppressions("a: 1  # disaggc: ignore[engine-version-nearst] fine\n")
    [finding] = apply_suppressions([], found)
    assert (finding.code, finding.help) == ("DGC131", "did you mean `engine-version-nearest`?")


@pytest.mark.parametrize(
    "text",
    [
        "a: 'x # disaggc: ignore[DGC204] no'\n",
        'a: "x # disaggc: ignore[DGC204] no"\n',
        "a: x#disaggc:ignore[DGC204] no\n",
        "a: |\n  # disaggc: ignore[DGC204] no\n  b\n",
        "a: >-\n  b\n\n  # disaggc: ignore[DGC204] no\n",
        "'# disaggc: ignore[DGC204] no': 1\n",
        "a: 'x\n  # disaggc: ignore[DGC204] no\n  y'\n",
    ],
)
def test_a_hash_in_a_text_is_no_comment(text: str) -> None:
    assert suppressions(text) == Suppressions()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: |  # disaggc: ignore[DGC204] yes\n  b\n", 1),
        ("a: |\n  b\n# disaggc: ignore[DGC204] yes\nc: 1\n", 4),
        ("a: >\n  b\n  c\n# disaggc: ignore[DGC204] yes\nc: 1\n", 5),
        ("a: [1, # disaggc: ignore[DGC204] yes\n  2]\n", 1),
        ("#disaggc:ignore[DGC204] yes\na: 1\n", 2),
        ("a: 'é'\t# disaggc: ignore[DGC204] yes\n", 1),
        ("a: 1\n# disaggc: ignore[DGC204] yes", 2),
    ],
)
def test_where_a_comment_is_one(text: str, line: int) -> None:
    [comment] = suppressions(text).found
    assert (comment.codes, comment.reason, comment.line) == (("DGC204",), "yes", line)


def test_comments_of_every_file_count() -> None:
    overlay = "services:\n  chat:\n    priority: 3  # disaggc: ignore[DGC204] there\n"
    outcome = loaded(changed(), {"b.yaml": overlay}, overlays=["b.yaml"])
    assert outcome.value is not None
    placed = place([warning("DGC204", "x", ("services", "chat", "priority"))], outcome.value.sources)
    assert apply_suppressions(placed, outcome.value.suppressions) == ()
