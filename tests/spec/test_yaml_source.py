from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.diagnostics import SourceSpan
from disaggc.spec.lines import Lines
from disaggc.spec.tree import MappingNode, Node, ScalarNode, SequenceNode, SourceMap, plain
from disaggc.spec.yaml_source import Parsed, parse


def parsed(text: str) -> Parsed:
    outcome = parse(text, "f")
    assert outcome.diagnostics == ()
    assert outcome.value is not None
    return outcome.value


def span(node: Node) -> tuple[int, int, int, int]:
    s = node.span
    return (s.line, s.column, s.end_line, s.end_column)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("Off", "Off"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("22:30", "22:30"),
        ("1:30:00", "1:30:00"),
        ("1e3", 1000.0),
        ("1E-3", 0.001),
        ("-2", -2),
        ("+7", 7),
        ("0", 0),
        ("0x1f", 31),
        (".5", 0.5),
        ("5.", 5.0),
        ("0.33", 0.33),
        ("0.33.0", "0.33.0"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00Z"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("1e999", "1e999"),
        ("9" * 30, "9" * 30),
        ("'no'", "no"),
        ('"1"', "1"),
        ("!!str 5", "5"),
        ("! 5", "5"),
        ("=", "="),
        ("10.0.0.1", "10.0.0.1"),
        ("+", "+"),
        (".", "."),
    ],
)
def test_what_a_scalar_means(text: str, value: object) -> None:
    data = plain(parsed(f"a: {text}\n").root)
    assert isinstance(data, dict)
    assert data["a"] == value
    assert type(data["a"]) is type(value)


@pytest.mark.parametrize("text", ["017", "-012", "0o17", "0b101", "00", "08", "0_1"])
def test_numbers_that_readers_read_differently_are_refused(text: str) -> None:
    outcome = parse(f"a: {text}\n", "f")
    [finding] = outcome.diagnostics
    assert (finding.code, finding.help) == ("DGC104", f'write `"{text}"` for text')
    assert finding.span == SourceSpan("f", 1, 4, 1, 4 + len(text))


BROKEN = [
    ("a: 1\n\tb: 2\n", "DGC102", (2, 1), "tab"),
    ("a:\n  b: 1\n  \tc: 2\n", "DGC102", (3, 3), "tab"),
    ("a: |\n\tx\n", "DGC102", (2, 1), "tab"),
    ("a: {b: 1\nc: 2\n", "DGC102", (1, 4), "`{` is not closed"),
    ("a: [1, 2\nb: 3\n", "DGC102", (1, 4), "`[` is not closed"),
    ("a: 'x\nb: 3\n", "DGC102", (1, 4), "never closed"),
    ("a: b: c\n", "DGC102", (1, 5), "no key can be"),
    ("a: @x\n", "DGC102", (1, 4), "`@` cannot begin"),
    ("a: `x`\n", "DGC102", (1, 4), "backtick"),
    ("a: %x\n", "DGC102", (1, 4), "`%` cannot begin"),
    ('a: "\\q"\n', "DGC102", (1, 5), "backslash"),
    ("a: *x\n", "DGC102", (1, 4), "no anchor"),
    ("a: &x [*x]\n", "DGC105", (1, 8), "contains itself"),
    ("a: 1\nb: 2\na: 3\n", "DGC103", (3, 1), "`a` stands twice"),
    ("a: {b: 1, b: 2}\n", "DGC103", (1, 11), "`b` stands twice"),
    ("a: {<<: {x: 1}, <<: 3}\n", "DGC105", (1, 17), "`<<` merges"),
    ("", "DGC105", (1, 1), "empty"),
    ("# only a comment\n", "DGC105", (1, 1), "empty"),
    ("a: 1\n---\nb: 2\n", "DGC105", (2, 1), "second document"),
    ("a: !foo 3\n", "DGC105", (1, 4), "`!foo`"),
    ("a: !!python/object:os.system {}\n", "DGC105", (1, 4), "no meaning"),
    ("a: !!set {x}\n", "DGC105", (1, 4), "no meaning"),
    ("? [a]\n: 1\n", "DGC105", (1, 3), "a key is a text"),
    ("a: {{ x }}\n", "DGC105", (1, 5), "a key is a text"),
    ("true: 1\n", "DGC104", (1, 1), "read as true or false"),
    ("~: 1\n", "DGC104", (1, 1), "read as null"),
    ("1.5: 1\n", "DGC104", (1, 1), "read as a number"),
    ("a: \x1b[31m\n", "DGC102", (1, 4), "U+001B"),
    ("a: \ud800\n", "DGC102", (1, 4), "U+D800"),
    ("[" * 100, "DGC105", (1, 66), "64 deep"),
    ("a: - b\n", "DGC102", (1, 4), "list cannot begin"),
    ("a:\n b:\n   - x\n  c: 1\n", "DGC102", (4, 3), "does not continue"),
    ("foo\nbar: 1\n", "DGC102", (2, 4), "no key can be"),
    ("%YAML 3.0\n---\na: 1\n", "DGC102", (1, 1), ""),
]


@pytest.mark.parametrize(("text", "code", "place", "words"), BROKEN)
def test_broken_text_is_one_finding_at_its_place(
    text: str, code: str, place: tuple[int, int], words: str
) -> None:
    outcome = parse(text, "f")
    finding = outcome.diagnostics[0]
    assert len(outcome.diagnostics) == 1
    assert finding.span is not None
    assert (finding.code, (finding.span.line, finding.span.column)) == (code, place)
    assert words in finding.message


def test_places_are_those_of_an_editor() -> None:
    root = parsed(
        "a: 1\nbé:\n  - x\n  - {c: 'd e', f: [1, 2]}\ng: |\n  text\n  more\nh: &n \U0001f600\n"
    ).root
    assert isinstance(root, MappingNode)
    assert span(root.entries["a"].node) == (1, 4, 1, 5)
    items = root.entries["bé"].node
    assert isinstance(items, SequenceNode)
    assert span(items.items[0]) == (3, 5, 3, 6)
    inner = items.items[1]
    assert isinstance(inner, MappingNode)
    assert span(inner) == (4, 5, 4, 26)
    assert span(inner.entries["c"].node) == (4, 9, 4, 14)
    assert inner.entries["f"].key_span == SourceSpan("f", 4, 16, 4, 17)
    assert span(root.entries["g"].node) == (5, 4, 8, 1)
    assert span(root.entries["h"].node) == (8, 4, 8, 8)


def test_lines_end_as_in_an_editor() -> None:
    """The parser also breaks lines at U+2028 and U+0085, an editor does not."""
    root = parsed("a: 'x\u2028y\x85z' # \u2029\r\nb: 1\rc: 2\r\n").root
    assert isinstance(root, MappingNode)
    assert root.entries["b"].key_span.line == 2
    assert root.entries["c"].key_span.line == 3


def test_a_block_ends_with_its_last_value_and_not_with_comments_after_it() -> None:
    root = parsed("a:\n  b: 1\n  c: 2   # here\n\n# there\n\nd: 3\n").root
    assert isinstance(root, MappingNode)
    assert span(root.entries["a"].node) == (2, 3, 3, 7)


def test_merge_keys_give_way_to_written_ones() -> None:
    root = parsed("x: &x {p: 1, q: 2}\ny: &y {q: 5, r: 6}\nz:\n  <<: [*x, *y]\n  p: 9\n").root
    data = plain(root)
    assert isinstance(data, dict)
    assert data["z"] == {"p": 9, "q": 2, "r": 6}


def test_a_byte_of_an_alias_bomb_is_enough() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    start = time.process_time()
    outcome = parse("\n".join(lines), "f")
    assert time.process_time() - start < 1
    assert outcome.value is None
    [finding] = outcome.diagnostics
    assert finding.code == "DGC105"
    assert "100,000 values" in finding.message
    assert finding.span is not None
    assert finding.span.line == 5


def test_aliases_cannot_dig_deeper_than_brackets() -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 90))]
    [finding] = parse("\n".join(lines), "f").diagnostics
    assert "64 deep" in finding.message


def test_a_missing_path_falls_back_to_its_nearest_parent() -> None:
    sources = SourceMap(parsed("a:\n  b: {c: 1}\n  d:\n    - e: 2\n").root)
    assert sources.value(("a", "b", "c")).column == 10
    assert sources.value(("a", "b", "x")) == sources.value(("a", "b", "x", "y")) == sources.key(("a", "b"))
    assert sources.value(("a", "zzz")) == sources.key(("a",)) == SourceSpan("f", 1, 1, 1, 2)
    assert sources.value(("a", "d", 0, "e")) == SourceSpan("f", 4, 10, 4, 11)
    assert sources.value(("a", "d", 7)) == sources.key(("a", "d"))
    assert sources.key(()) == SourceSpan("f", 1, 1, 1, 2)


_pieces = st.sampled_from(
    [
        "a",
        "b:",
        ": ",
        "\n",
        "  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "'",
        '"',
        "#",
        " # c",
        "|",
        ">",
        "&x ",
        "*x",
        "!t ",
        "\t",
        "<<: ",
        "? ",
        "---\n",
        "\r\n",
        "\u2028",
        "é",
        "😀",
        "1",
        "true",
        "~",
        "\\",
        "%",
        "@",
        "`",
        "\x00",
        "\x85",
    ]
)
_texts = st.lists(_pieces, max_size=40).map("".join) | st.text(max_size=60)


def inside(place: SourceSpan, lines: Lines) -> bool:
    if not 1 <= place.line <= place.end_line <= lines.count:
        return False
    start_room = len(lines.line_text(place.line)) + 1
    end_room = len(lines.line_text(place.end_line)) + 1
    ordered = (place.line, place.column) <= (place.end_line, place.end_column)
    return ordered and 1 <= place.column <= start_room and 1 <= place.end_column <= end_room


def all_spans(node: Node) -> list[SourceSpan]:
    match node:
        case ScalarNode():
            return [node.span]
        case SequenceNode():
            return [node.span, *(s for item in node.items for s in all_spans(item))]
        case MappingNode():
            own = [node.span, *(entry.key_span for entry in node.entries.values())]
            return [*own, *(s for entry in node.entries.values() for s in all_spans(entry.node))]


@given(_texts)
def test_no_text_raises_and_every_place_lies_in_it(text: str) -> None:
    outcome = parse(text, "f")
    lines = Lines(text, "f")
    assert outcome.value is not None or outcome.diagnostics
    places = [d.span for d in outcome.diagnostics] + [
        label.span for d in outcome.diagnostics for label in d.labels
    ]
    if outcome.value is not None:
        places += all_spans(outcome.value.root)
    for place in places:
        assert place is not None
        assert inside(place, lines), (place, text)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_no_place_lies_inside_the_end_of_a_line(end: str) -> None:
    (found,) = parse(f"a: 1{end}b: [{end}", "f").diagnostics
    assert found.span == SourceSpan("f", 2, 5, 2, 5)


@pytest.mark.parametrize("text", ["\t", "\n\t", "\r\n\t"])
def test_a_tab_alone_on_its_line_is_called_a_tab(text: str) -> None:
    (found,) = parse(text, "f").diagnostics
    assert "a tab indents" in found.message
    assert found.span is not None
    assert found.span.line == text.count("\n", 0, text.index("\t")) + 1
