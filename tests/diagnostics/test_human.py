from __future__ import annotations

import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.diagnostics import Diagnostic, Severity, SourceSpan
from disaggc.diagnostics.render import Report
from disaggc.diagnostics.render.human import human
from disaggc.diagnostics.render.visible import cells, visible, width
from tests.diagnostics.samples import EMPTY, EVERYTHING, FILE, FULL, report, span

GOLDEN = """\
error[DGC803 proxy-port]: `port` 443 lies below 1024, which needs privileges the proxy does not have
 --> specs/disaggc.yaml:4:19
  |
4 |     proxy: {port: 443}
  |                   ^^^
 --> specs/disaggc.yaml:5:5
  |
5 |     engine: {settings: {port: 8001}}
  |     ------ engines are here
  = note: the proxy runs as a system user
  = help: write e.g. `port: 8000`

warning[DGC214 owned-flag]: `port` is decided by the compiler and cannot be set
 --> specs/disaggc.yaml:5:25
  |
5 |     engine: {settings: {port: 8001}}
  |                         ^^^^

note[DGC190 rule-crashed]: a check failed
  = note: this is a bug

1 error, 1 warning, 1 note
"""


def test_the_whole_text_in_reading_order():
    assert human(FULL) == GOLDEN


def test_nothing_to_say_is_nothing():
    assert human(EMPTY) == ""


def test_colour_only_when_asked_and_only_colour():
    painted = human(FULL, color=True)
    assert "\x1b[1;31m" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == GOLDEN
    assert "\x1b" not in human(FULL)


def test_no_text_can_act_on_the_terminal_or_fake_a_line():
    text = human(EVERYTHING)
    acting = {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp", "Cs"} and c != "\n"}
    assert not acting
    ours = re.compile(
        r"^(error|warning|note)\[DGC\d{3} [a-z-]+\]: |^ *\d* [|=] |^ *--> |^ +\||^ {10,}|^\d+ (error|warning)|^$"
    )
    assert [line for line in text.split("\n") if not ours.match(line)] == []
    assert text.count("error[") == 2


def caret(line: str, column: int, length: int) -> tuple[str, str]:
    d = Diagnostic("DGC803", Severity.ERROR, "m", ("a",), SourceSpan(FILE, 1, column, 1, column + length))
    lines = human(report(d, text=line + "\n")).split("\n")
    return lines[3][4:], lines[4][4:]


@pytest.mark.parametrize(
    ("line", "column", "length", "underline"),
    [
        ("key: value", 6, 5, "     ^^^^^"),
        ("日本: 語", 5, 1, "      ^^"),
        ("\tkey: x", 2, 3, "    ^^^"),
        ("ab\tkey", 4, 3, "    ^^^"),
        ("e\u0301: x", 5, 1, "   ^"),
        ("\u202eab: x", 6, 1, " " * len("<U+202E>ab: ") + "^"),
        ("key: ''", 6, 0, "     ^"),
        ("key:", 5, 1, "    ^"),
    ],
)
def test_the_caret_stands_under_its_place(line, column, length, underline):
    shown, under = caret(line, column, length)
    assert under == underline
    assert "\t" not in shown


def test_a_span_over_lines_is_underlined_to_the_end_of_its_first():
    d = Diagnostic("DGC803", Severity.ERROR, "m", ("a",), SourceSpan(FILE, 1, 6, 3, 2))
    assert human(report(d, text="key: |\n  a\n b\n")).split("\n")[4][4:] == "     ^"


def test_a_long_line_is_cut_around_its_place():
    line = "x" * 5000 + "HERE" + "y" * 5000
    shown, under = caret(line, 5001, 4)
    assert len(shown) < 180
    assert shown[under.index("^") : under.index("^") + 4] == "HERE"
    assert shown.startswith("...")
    assert shown.endswith("...")


def test_the_place_is_cut_out_of_a_huge_line_at_once():
    """Cutting that counts the line anew for each of its characters takes a minute here."""
    line = "x" * 500_000 + "HERE"
    started = time.process_time()
    shown, under = caret(line, 500_001, 4)
    assert time.process_time() - started < 5
    assert shown[under.index("^") : under.index("^") + 4] == "HERE"


def test_a_place_beyond_its_file_still_names_it():
    d = Diagnostic("DGC803", Severity.ERROR, "m", ("a",), span(99, 3, 1))
    assert f"--> {FILE}:99:3" in human(report(d))
    assert "unread.yaml:1:1" in human(
        report(Diagnostic("DGC803", Severity.ERROR, "m", (), span(1, 1, 1, "unread.yaml")))
    )


@given(st.text(), st.integers(1, 60), st.integers(0, 20))
def test_any_text_renders_and_every_line_is_harmless(text, column, length):
    d = Diagnostic(
        "DGC803", Severity.ERROR, text, (text,), SourceSpan(FILE, 1, column, 1, column + length), help=text
    )
    out = human(Report((d,), {FILE: text}, {}))
    out.encode("utf-8")
    assert not {c for c in out if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and c != "\n"}


@given(st.text())
def test_cells_are_one_for_each_character(text):
    assert len(cells(text)) == len(text)
    assert width(visible(text)) >= 0
