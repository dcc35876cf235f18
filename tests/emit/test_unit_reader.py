"""The reader against systemd's documented rules: systemd.syntax(7) and systemd.service(5)."""

from __future__ import annotations

import pytest

from disaggc.emit.reading.units import UnreadableUnitError, read_unit, words

# raw text of a line -> the words systemd makes of it
RULES = {
    "a b": ["a", "b"],
    "  a\t b  ": ["a", "b"],
    '"a b" c': ["a b", "c"],
    "'a b' c": ["a b", "c"],
    "'a \"b\"'": ['a "b"'],
    '"it\'s"': ["it's"],
    'pre"quoted part"post': ["prequoted partpost"],
    '""': [""],
    r'"a\nb"': ["a\nb"],
    r"'a\tb'": ["a\tb"],
    r'"a\sb"': ["a b"],
    r'"\x41\x7e"': ["A~"],
    r'"é\U0001f600"': ["é\U0001f600"],
    r'"a\"b\\c"': ['a"b\\c'],
    r"a\ \ b".replace("\\ ", "\\s"): ["a  b"],
}


@pytest.mark.parametrize("raw", sorted(RULES))
def test_words(raw):
    assert [word for word, _ in words(raw)] == RULES[raw]


@pytest.mark.parametrize("raw", ['"open', "'open", r"\q", r"\x0", r'"\x00"', r"\u12", "\\"])
def test_what_systemd_would_drop_is_refused(raw):
    with pytest.raises(UnreadableUnitError):
        list(words(raw))


def command(raw: str) -> tuple[str, ...]:
    return read_unit(f"[Service]\nExecStart={raw}\n").commands("ExecStart")[0]


def test_specifiers_and_variables():
    assert command("/bin/x 100%% $$HOME $${A}") == ("/bin/x", "100%", "$HOME", "${A}")
    # the executable itself is not searched for variables
    assert command("/bin/$$x") == ("/bin/$$x",)


@pytest.mark.parametrize(
    "raw", ["/bin/x %n", "/bin/x $HOME", "/bin/x ${A}", "/bin/x ; /bin/y", "-/bin/x", "+/bin/x"]
)
def test_what_would_mean_more_than_text_is_refused(raw):
    with pytest.raises(UnreadableUnitError):
        command(raw)


def test_continued_lines_comments_and_sections():
    text = "# c\n[A]\nK=1 \\\n  2 \\\n# inside a continued line\n  3\n; c\n\n[B]\nK = x \n"
    assert read_unit(text).assignments == (("A", "K", "1  2  3"), ("B", "K", "x"))
    assert [word for word, _ in words(read_unit(text).raw("A", "K")[0])] == ["1", "2", "3"]


def test_an_escaped_backslash_continues_nothing():
    assert read_unit("[A]\nK=x\\\\\nL=1\n").assignments == (("A", "K", "x\\\\"), ("A", "L", "1"))


def test_environment_takes_no_variables_but_specifiers():
    unit = read_unit('[Service]\nEnvironment=A=$x "B=1 2" C=50%%\nEnvironment=A=y\n')
    assert unit.environment() == {"A": "y", "B": "1 2", "C": "50%"}


@pytest.mark.parametrize("text", ["K=1\n", "[A\nK=1\n", "[A]\nnothing\n"])
def test_not_a_unit(text):
    with pytest.raises(UnreadableUnitError):
        read_unit(text)
