"""For test reporters: one test case per finding, errors as failures; a passing case when there is nothing to say."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from disaggc.diagnostics.model import Diagnostic, Severity
from disaggc.diagnostics.render.report import Report
from disaggc.diagnostics.render.visible import visible


def junit(report: Report) -> str:
    """A JUnit document. Control characters, which XML cannot hold, are shown as their code points."""
    found = report.sorted()
    failures = sum(d.severity is Severity.ERROR for d in found)
    counts = {"tests": str(max(1, len(found))), "failures": str(failures), "errors": "0"}
    root = ET.Element("testsuites", {"name": "disaggc", **counts})
    suite = ET.SubElement(root, "testsuite", {"name": "disaggc validate", **counts})
    if not found:
        ET.SubElement(suite, "testcase", {"name": "spec", "classname": "disaggc"})
    for diagnostic in found:
        _case(suite, diagnostic, report)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _case(suite: ET.Element, diagnostic: Diagnostic, report: Report) -> None:
    span = diagnostic.span
    place = f"{span.file}:{span.line}:{span.column}" if span is not None else "spec"
    name = f"{diagnostic.code} {report.name(diagnostic.code)} at {place}"
    attributes = {"name": visible(name), "classname": visible(span.file if span is not None else "disaggc")}
    if span is not None:
        attributes |= {"file": visible(span.file), "line": str(span.line)}
    case = ET.SubElement(suite, "testcase", attributes)
    lines = [
        diagnostic.message,
        *diagnostic.notes,
        *([f"help: {diagnostic.help}"] if diagnostic.help else []),
    ]
    text = "\n".join(visible(part) for line in lines for part in line.split("\n"))
    if diagnostic.severity is Severity.ERROR:
        message = {"message": visible(diagnostic.message), "type": diagnostic.code}
        ET.SubElement(case, "failure", message).text = text
    else:
        ET.SubElement(case, "system-out").text = f"{diagnostic.severity}: {text}"
