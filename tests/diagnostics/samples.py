"""Reports with everything a renderer must place: labels, notes, help, no place, hostile text, wide characters."""

from __future__ import annotations

from disaggc.diagnostics import Diagnostic, Label, Severity, SourceSpan
from disaggc.diagnostics.render import Report

FILE = "specs/disaggc.yaml"
TEXT = """\
version: 1
services:
  chat:
    proxy: {port: 443}
    engine: {settings: {port: 8001}}
"""
NAMES = {"DGC803": "proxy-port", "DGC214": "owned-flag", "DGC190": "rule-crashed", "DGC801": "open-proxy"}


def span(line: int, column: int, length: int, file: str = FILE) -> SourceSpan:
    return SourceSpan(file, line, column, line, column + length)


PORT = Diagnostic(
    "DGC803",
    Severity.ERROR,
    "`port` 443 lies below 1024, which needs privileges the proxy does not have",
    ("services", "chat", "proxy", "port"),
    span(4, 19, 3),
    labels=(Label(("services", "chat", "engine"), "engines are here", span(5, 5, 6)),),
    notes=("the proxy runs as a system user",),
    help="write e.g. `port: 8000`",
)
OWNED = Diagnostic(
    "DGC214",
    Severity.WARNING,
    "`port` is decided by the compiler and cannot be set",
    ("services", "chat", "engine", "settings", "port"),
    span(5, 25, 4),
    at_key=True,
)
PLACELESS = Diagnostic("DGC190", Severity.NOTE, "a check failed", notes=("this is a bug",))
EVIL = "a\x1b[31mred\r\nsecond ::error::line\u202eevil\u2028 %0A <b>&\"'\x00 \u200b end"
HOSTILE = Diagnostic(
    "DGC801",
    Severity.ERROR,
    EVIL,
    ("services", EVIL),
    span(1, 1, 7, f"dir,with:odd %name{EVIL}.yaml"),
    labels=(Label((), EVIL, span(2, 1, 3)),),
    notes=(EVIL,),
    help=EVIL,
)


def report(*diagnostics: Diagnostic, text: str = TEXT) -> Report:
    return Report(diagnostics, {FILE: text}, NAMES, "1.2.3")


FULL = report(OWNED, PLACELESS, PORT)
"""Given out of order: renderers sort."""
EMPTY = report()
EVERYTHING = report(OWNED, PLACELESS, PORT, HOSTILE)
