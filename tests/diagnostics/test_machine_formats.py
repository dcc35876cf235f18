from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from disaggc.diagnostics import Diagnostic, Severity, SourceSpan
from disaggc.diagnostics.render import Report
from disaggc.diagnostics.render.github import github
from disaggc.diagnostics.render.json import items, json_schema
from disaggc.diagnostics.render.json import json as as_json
from disaggc.diagnostics.render.junit import junit
from disaggc.diagnostics.render.sarif import sarif
from tests.diagnostics.samples import EMPTY, EVERYTHING, EVIL, FILE, FULL, HOSTILE, report
from tests.diagnostics.sarif_shape import SARIF

REPORTS = pytest.mark.parametrize("given_report", [EMPTY, FULL, EVERYTHING], ids=["empty", "full", "hostile"])
SCHEMA = Path(__file__).resolve().parents[2] / "schemas" / "diagnostics.v1.json"


def test_json_has_every_key_of_the_contract():
    document = json.loads(as_json(FULL))
    assert document["schema"] == "disaggc.diagnostics/v1"
    first = document["diagnostics"][0]
    assert first == {
        "code": "DGC803",
        "name": "proxy-port",
        "severity": "error",
        "message": "`port` 443 lies below 1024, which needs privileges the proxy does not have",
        "field": "services.chat.proxy.port",
        "file": FILE,
        "line": 4,
        "column": 19,
        "end_line": 4,
        "end_column": 22,
        "labels": [
            {
                "message": "engines are here",
                "field": "services.chat.engine",
                "file": FILE,
                "line": 5,
                "column": 5,
                "end_line": 5,
                "end_column": 11,
            }
        ],
        "notes": ["the proxy runs as a system user"],
        "help": "write e.g. `port: 8000`",
    }
    assert [d["code"] for d in document["diagnostics"]] == ["DGC803", "DGC214", "DGC190"]
    assert document["diagnostics"][2]["file"] is None
    assert items(FULL) == document["diagnostics"]


@REPORTS
def test_json_fits_its_schema(given_report):
    assert not list(Draft202012Validator(json_schema()).iter_errors(json.loads(as_json(given_report))))


def test_the_schema_refuses_what_is_not_a_diagnostic():
    document = json.loads(as_json(FULL))
    document["diagnostics"][0]["severity"] = "fatal"
    assert list(Draft202012Validator(json_schema()).iter_errors(document))


def test_the_shipped_schema_is_current(regen_golden):
    wanted = json.dumps(json_schema(), indent=2) + "\n"
    if regen_golden:
        SCHEMA.write_text(wanted, encoding="utf-8")
    assert SCHEMA.read_text(encoding="utf-8") == wanted, "run `make schemas` and review the difference"


@REPORTS
def test_sarif_is_valid(given_report):
    log = json.loads(sarif(given_report))
    assert not [error.message for error in Draft7Validator(SARIF).iter_errors(log)]
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
    assert len(run["results"]) == len(given_report.diagnostics)


def test_sarif_keeps_place_level_and_labels():
    results = json.loads(sarif(FULL))["runs"][0]["results"]
    assert [r["level"] for r in results] == ["error", "warning", "note"]
    region = results[0]["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 4, "startColumn": 19, "endLine": 4, "endColumn": 22}
    assert results[0]["relatedLocations"][0]["message"]["text"] == "engines are here"
    assert "locations" not in results[2]


def test_sarif_uri_reads_back_to_the_file():
    result = json.loads(sarif(report(HOSTILE)))["runs"][0]["results"][0]
    assert HOSTILE.span is not None
    assert unquote(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]) == HOSTILE.span.file


def test_github_is_one_command_a_line():
    lines = github(EVERYTHING).splitlines()
    assert len(lines) == 4
    assert lines[1] == (
        "::error file=specs/disaggc.yaml,line=4,endLine=4,col=19,endColumn=21,title=DGC803 proxy-port::"
        "`port` 443 lies below 1024, which needs privileges the proxy does not have"
        "%0Athe proxy runs as a system user%0Ahelp: write e.g. `port: 8000`"
    )
    assert lines[3].startswith("::notice title=DGC190 rule-crashed::a check failed")
    assert github(EMPTY) == ""


@given(st.text(), st.text(min_size=1))
def test_github_commands_cannot_be_broken(message, file):
    d = Diagnostic("DGC803", Severity.ERROR, message, (), SourceSpan(file, 1, 1, 1, 2))
    out = github(Report((d,), {}, {}))
    assert out.count("\n") == 1
    match = re.fullmatch(r"::error ([^\n]*?)::([^\n]*)\n", out)
    assert match is not None
    properties = dict(part.split("=", 1) for part in match[1].split(","))
    assert set(properties) == {"file", "line", "endLine", "col", "endColumn", "title"}
    assert not re.search(r"%(?!25|0A|3A|2C)", out)


@REPORTS
def test_junit_parses_and_counts(given_report):
    root = ET.fromstring(junit(given_report))  # noqa: S314 - our own output
    suite = root[0]
    errors = sum(d.severity is Severity.ERROR for d in given_report.diagnostics)
    assert int(suite.attrib["failures"]) == errors == len(suite.findall("testcase/failure"))
    assert int(suite.attrib["tests"]) == len(suite) == max(1, len(given_report.diagnostics))


@given(st.text())
def test_junit_holds_any_text(text):
    d = Diagnostic("DGC803", Severity.ERROR, text, (), SourceSpan(text or "f", 1, 1, 1, 2), help=text)
    ET.fromstring(junit(Report((d,), {}, {})).encode("utf-8"))  # noqa: S314 - our own output


@given(st.text())
def test_json_and_sarif_hold_any_text(text):
    d = Diagnostic("DGC803", Severity.ERROR, text, (text,), SourceSpan(text or "f", 1, 1, 1, 2), help=text)
    one = Report((d,), {}, {})
    assert json.loads(as_json(one))["diagnostics"][0]["message"] == text
    assert as_json(one).isascii()
    log = json.loads(sarif(one))
    assert text in log["runs"][0]["results"][0]["message"]["text"]
    assert sarif(one).isascii()
    assert not list(Draft7Validator(SARIF).iter_errors(log))


def test_hostile_text_is_inside_strings_only():
    assert EVIL in json.loads(as_json(EVERYTHING))["diagnostics"][0]["message"]
    assert "\x1b" not in github(EVERYTHING)
    assert "\x00" not in junit(EVERYTHING)
