"""The set of rules as a whole: codes, names, pages, sources, suppression, import cost."""

from __future__ import annotations

import re
import subprocess
import sys
from inspect import getdoc

import pytest

from disaggc.diagnostics import CODES
from disaggc.rules import known_codes, plan_rules, rule_for, rule_page, spec_rules, suppressible_errors
from disaggc.rules.registry import rule_codes
from disaggc.rules.rule import SpecRule

RULES = (*spec_rules(), *plan_rules())
IDS = [rule.code for rule in RULES]
BY_CODE = pytest.mark.parametrize("rule", RULES, ids=IDS)


def test_codes_and_names_are_given_once():
    codes = [*CODES, *IDS]
    names = [*(code.name for code in CODES.values()), *(rule.name for rule in RULES)]
    assert len(set(codes)) == len(codes)
    assert len(set(names)) == len(names)
    assert len(RULES) >= 80


def test_the_file_name_says_code_and_name():
    assert {(code.id, code.name) for code in rule_codes()} == {(rule.code, rule.name) for rule in RULES}
    assert {code.id for code in known_codes()} == {*CODES, *IDS}


@BY_CODE
def test_every_rule_has_a_page_with_its_examples_and_sources(rule):
    page = rule_page(rule.code)
    assert page is not None
    assert page == rule_page(rule.name)
    first, *_ = page.splitlines()
    assert first.startswith(f"{rule.code} {rule.name} ({rule.severity}")
    assert len(sys.modules[rule.check.__module__].__doc__ or "") > 100
    assert getdoc(rule.check)
    assert rule.sources
    assert all(source in page for source in rule.sources)
    if isinstance(rule, SpecRule):
        assert rule.fails
        assert rule.passes
        assert f"^ {rule.code}" in page
    assert ("Silence one finding" in page) is rule.suppressible


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_stage_code_has_a_page(code):
    assert (rule_page(code) or "").startswith(f"{code} {CODES[code].name}\n")


def test_an_unknown_code_has_no_page():
    assert rule_page("DGC999") is None
    assert rule_for("no-such-rule") is None


def test_codes_are_of_their_kind():
    kinds = {
        "names": "2",
        "memory": "3",
        "transfer": "4",
        "objectives": "5",
        "targets": "6",
        "frontend": "789",
    }
    for rule in spec_rules():
        area = rule.check.__module__.split(".")[-2]
        assert rule.code[3] in kinds[area], rule.code


def test_what_corrupts_answers_cannot_be_silenced():
    may = suppressible_errors()
    assert may.isdisjoint({"DGC401", "DGC406", "DGC408", "DGC416", "DGC214", "DGC217"})
    assert "DGC210" in may


@BY_CODE
def test_rules_speak_as_they_should(rule):
    """Names are kebab-case; nothing in a page names a module that is not there."""
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert re.fullmatch(r"DGC\d{3}", rule.code)
    assert rule.check.__module__.endswith(f"{rule.code.lower()}_{rule.name.replace('-', '_')}")


def test_loading_every_spec_rule_imports_nothing_heavy():
    script = (
        "import sys; from disaggc.rules import spec_rules; spec_rules(); "
        "print([m for m in ('numpy', 'ortools', 'aiohttp', 'asyncio', 'rich', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
