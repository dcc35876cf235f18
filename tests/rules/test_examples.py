"""Every rule raises exactly what its failing examples mark, at the marked place, and nothing on its passing ones."""

from __future__ import annotations

import pytest

from disaggc.rules import spec_rules
from disaggc.rules.rule import SpecRule
from tests.rules.marked import OVERLAY, findings, marks

FAILING = [
    pytest.param(rule, text, id=f"{rule.code}-{number}")
    for rule in spec_rules()
    for number, text in enumerate(rule.fails)
]
PASSING = [
    pytest.param(rule, text, id=f"{rule.code}-{number}")
    for rule in spec_rules()
    for number, text in enumerate(rule.passes)
]


@pytest.mark.parametrize(("rule", "text"), FAILING)
def test_failing_example_raises_what_it_marks(rule: SpecRule, text: str):
    expected = marks(text)
    assert rule.code in {code for code, *_ in expected}
    found, _ = findings(text)
    seen = sorted((d.code, d.span.line, d.span.column) for d in found if d.span is not None)
    assert seen == sorted((code, line, column) for code, line, column, _ in expected), [str(d) for d in found]
    assert all(d.span is not None and d.span.file == OVERLAY for d in found), found
    for code, line, column, severity in expected:
        wanted = severity or (str(rule.severity) if code == rule.code else None)
        if wanted is not None:
            assert any(
                d.code == code and d.span is not None and (d.span.line, d.span.column) == (line, column)
                and str(d.severity) == wanted
                for d in found
            ), found  # fmt: skip


@pytest.mark.parametrize(("rule", "text"), PASSING)
def test_passing_example_raises_nothing(rule: SpecRule, text: str):
    found, resolved = findings(text)
    assert not found, rule.code
    assert resolved is not None


def test_the_example_spec_is_sound():
    found, resolved = findings("version: 1")
    assert not found
    assert resolved is not None
