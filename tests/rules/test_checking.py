"""Running rules: a crash inside one, severity, given subsets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules import check, spec_rules
from disaggc.rules.rule import Finding, stamped
from tests.rules.marked import findings


def crash(_: ResolvedSpec) -> Iterator[Finding]:
    yield Finding("seen before the crash", ("services",))
    raise ZeroDivisionError("by design")


def test_a_crash_in_one_rule_is_its_own_bug_and_the_others_run():
    _, resolved = findings("services: {chat: {proxy: {api_key: null}}}")
    assert resolved is not None
    rules = spec_rules()
    broken = replace(rules[0], check=crash)
    found = check(resolved, (broken, *rules[1:]))
    assert [d.code for d in found] == [broken.code, "DGC190", "DGC801"]
    bug = found[1]
    assert bug.severity is Severity.ERROR
    assert broken.code in bug.message
    assert "ZeroDivisionError: by design" in bug.message


def test_a_rule_stamps_its_code_and_its_severity_unless_the_finding_is_milder():
    rule = spec_rules()[0]
    plain = stamped(rule, Finding("m", ("version",)))
    mild = stamped(rule, Finding("m", ("version",), severity=Severity.NOTE, at_key=True))
    assert (plain.code, plain.severity, plain.at_key) == (rule.code, rule.severity, False)
    assert (mild.severity, mild.at_key) == (Severity.NOTE, True)


def test_findings_report_everything_in_one_run():
    text = """
        services:
          chat:
            engine:
              settings: {port: 1, no-such-flag: 2, dtype: bfloat61}
              env: {VLLM_SERVER_DEV_MODE: "1", HF_TOKEN: abc}
            proxy: {port: 443}
    """
    found, _ = findings(text)
    assert {d.code for d in found} == {"DGC214", "DGC210", "DGC213", "DGC218", "DGC219", "DGC803"}


def test_messages_are_sentences_in_lower_case_with_a_way_out():
    for rule in spec_rules():
        for example in rule.fails:
            for d in findings(example)[0]:
                if d.code != rule.code:
                    continue
                assert d.message[0].islower() or d.message[0] == "`", d.message
                assert not d.message.endswith("."), d.message
                assert "\n" not in d.message
                assert d.help, d.code
