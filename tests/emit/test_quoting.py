"""Any text comes back from each format's own parser as it went in, or is refused."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from disaggc.emit import quoting
from disaggc.emit.quoting import UnsafeTextError
from disaggc.emit.reading.documents import all_interpolated
from disaggc.emit.reading.units import read_unit
from tests.emit.hostile import HOSTILE, texts

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts().map(lambda key: key[:100]), inner, max_size=4)
    ),
    max_leaves=12,
)


def unit(line: str):
    return read_unit(f"[Service]\n{line}\n")


@given(texts())
def test_argument_of_a_unit(text):
    assert unit(f"ExecStart=/bin/x {quoting.unit_argument(text)} last").commands("ExecStart") == (
        ("/bin/x", text, "last"),
    )


@given(texts(), texts())
def test_variable_of_a_unit(first, second):
    read = unit(
        f"Environment={quoting.unit_assignment('A', first)}\nEnvironment={quoting.unit_assignment('B', second)}"
    )
    assert read.environment() == {"A": first, "B": second}


@given(texts())
def test_executable_of_a_unit_or_refusal(text):
    try:
        quoted = quoting.unit_executable(text)
    except UnsafeTextError:
        return
    assert unit(f"ExecStart={quoted} serve").commands("ExecStart") == ((text, "serve"),)


@given(texts())
def test_plain_line_of_a_unit_or_refusal(text):
    try:
        quoted = quoting.unit_line(text)
    except UnsafeTextError:
        return
    assert unit(f"Description=x{quoted}").lines("Service", "Description") == (f"x{text}",)


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
@given(value=VALUES)
def test_value_in_yaml(loader, value):
    text = f"before: 1\nplaced: {quoting.yaml_value(value)}\nafter: 2\n"
    assert yaml.load(text, Loader=loader) == {"before": 1, "placed": value, "after": 2}  # noqa: S506


@given(VALUES)
def test_value_in_a_compose_file(value):
    document = yaml.safe_load(f"placed: {quoting.compose_value(value)}\n")
    assert all_interpolated(document) == {"placed": value}


@given(VALUES)
def test_json_as_a_block(value):
    text = json.dumps({"a": value, "b": [1, {"c": "x"}]}, indent=2, sort_keys=True) + "\n"
    document = f"data:\n  file: {quoting.yaml_block(text, 4)}\nafter: 1\n"
    assert yaml.safe_load(document) == {"data": {"file": text}, "after": 1}


def test_a_key_longer_than_yaml_allows_is_refused():
    with pytest.raises(UnsafeTextError):
        quoting.yaml_value({"x" * 1_023 + " ": 1})


@pytest.mark.parametrize("text", ["", "\n", " a\n", "a\n\nb\n", "a", "é\n", "a\tb\n"])
def test_block_refuses_what_it_would_change(text):
    with pytest.raises((UnsafeTextError, IndexError)):
        quoting.yaml_block(text, 2)


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "x" * 200_000])
def test_no_process_can_be_given_this(text):
    for quote in (quoting.unit_argument, quoting.process_text):
        with pytest.raises(UnsafeTextError):
            quote(text)


@pytest.mark.parametrize(
    "text",
    [
        "vllm",
        "../vllm",
        "/opt/vllm/",
        "/opt/../vllm",
        "/a'b",
        '/a"b',
        "/a\\b",
        "/a$b",
        "/a\nb",
        "/" + "x" * 256,
    ],
)
def test_executables_that_systemd_refuses(text):
    with pytest.raises(UnsafeTextError):
        quoting.unit_executable(text)


def test_invisible_characters_are_spelled_out():
    assert quoting.unit_argument("a\u202eb\u00a0c\u2028") == '"a\\u202eb\\u00a0c\\u2028"'
    assert quoting.yaml_value("a\u202eb\x1b") == '"a\\u202eb\\x1b"'


def test_plain_words_stay_plain():
    assert quoting.unit_argument("--port=20000") == "--port=20000"
    assert quoting.unit_argument('{"a": 1}') == "'{\"a\": 1}'"
    assert quoting.unit_argument(";") == '";"'
    assert quoting.unit_argument("") == '""'


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_never_begin_a_line(text):
    for quote in (quoting.unit_argument, quoting.yaml_value, quoting.compose_value):
        assert "\n" not in quote(text)
        assert "\r" not in quote(text)
