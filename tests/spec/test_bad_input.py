"""Every kind of file that is no spec: one clear finding with its place, fast, never an exception."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.spec.load import load
from tests.spec.loading import NAME, VALID, changed, loaded, said


def only(path: Path) -> tuple[str, str, int, int]:
    outcome = load([path])
    assert outcome.value is None
    [finding] = outcome.diagnostics
    assert finding.span is not None
    assert finding.span.file == str(path)
    return finding.code, finding.message, finding.span.line, finding.span.column


@pytest.mark.parametrize(
    ("content", "code", "words", "place"),
    [
        (b"", "DGC105", "empty", (1, 1)),
        (b"\xef\xbb\xbf", "DGC105", "empty", (1, 1)),
        (b"\n\n# nothing\n", "DGC105", "empty", (1, 1)),
        (b"---\n", "DGC105", "empty", (1, 1)),
        (b"a: 1\n\x00\x01", "DGC101", "binary", (2, 1)),
        (b"\x7fELF\x02\x01\x01\x00", "DGC101", "binary", (1, 8)),
        (b"a: 1\nb: caf\xe9\n", "DGC101", "0xe9 is not UTF-8", (2, 7)),
        ("a: 1".encode("utf-16"), "DGC101", "UTF-16", (1, 1)),
        ("a: 1".encode("utf-32"), "DGC101", "UTF-32", (1, 1)),
        (b"just a sentence\n", "DGC105", "a single value", (1, 1)),
        (b"- a\n- b\n", "DGC105", "a list", (1, 1)),
        (b"version: 1\n\tcluster: {}\n", "DGC102", "tab", (2, 1)),
        (b"version: 1\n---\nversion: 1\n", "DGC105", "second document", (2, 1)),
    ],
)
def test_a_file_that_is_no_spec(
    tmp_path: Path, content: bytes, code: str, words: str, place: tuple[int, int]
) -> None:
    path = tmp_path / "disaggc.yaml"
    path.write_bytes(content)
    found = only(path)
    assert (found[0], found[2:]) == (code, place)
    assert words in found[1]


def test_a_byte_order_mark_moves_no_column(tmp_path: Path) -> None:
    path = tmp_path / "disaggc.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + changed(("version: 1", "version: 7")).encode())
    assert only(path)[2:] == (1, 10)


def test_a_missing_file(tmp_path: Path) -> None:
    assert only(tmp_path / "nowhere.yaml")[:2] == (
        "DGC101",
        f"`{tmp_path}/nowhere.yaml`: the file does not exist",
    )


def test_a_directory(tmp_path: Path) -> None:
    code, message, *_ = only(tmp_path)
    assert code == "DGC101"
    assert "directory" in message


def test_a_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    assert "not a directory" in only(tmp_path / "a" / "b.yaml")[1]


def test_a_loop_of_links(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("b.yaml")
    (tmp_path / "b.yaml").symlink_to("a.yaml")
    assert "loop of symbolic links" in only(tmp_path / "a.yaml")[1]


def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in only(tmp_path / "pipe")[1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text(VALID)
    (tmp_path / "secret.yaml").chmod(0)
    assert "permission denied" in only(tmp_path / "secret.yaml")[1]


def test_a_path_with_a_nul() -> None:
    assert "NUL" in only(Path("a\0b.yaml"))[1]


def test_fifty_megabytes_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as stream:
        stream.truncate(50 * 2**20)
    start = time.process_time()
    code, message, line, column = only(path)
    assert time.process_time() - start < 0.1
    assert (code, line, column) == ("DGC101", 1, 1)
    assert "50.0 MiB" in message
    assert "5.0 MiB" in message


def test_an_alias_bomb() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert said(loaded("\n".join(lines))) == ["DGC105 5:45"]


def test_a_duplicate_key_is_reported_beside_everything_else() -> None:
    text = changed(("        rate: 2/s\n", "        rate: 2/s\n        rate: 3/s\n"), ("vllm:", "vlm:"))
    outcome = loaded(text)
    assert said(outcome) == ["DGC103 16:9", "DGC110 18:7"]
    assert outcome.diagnostics[0].labels[0].span is not None
    assert outcome.diagnostics[0].labels[0].span.line == 15
    assert outcome.diagnostics[1].help == "did you mean `vllm`?"


def test_hundreds_of_mistakes_are_capped_with_a_note() -> None:
    fields = "".join(f"  zz{n}: 1\n" for n in range(250))
    outcome = loaded(changed(("cluster:\n", "cluster:\n" + fields)))
    assert len(outcome.diagnostics) == 100
    assert outcome.diagnostics[-1].notes == ("150 more findings are not shown",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# disaggc: ignore[DGC204] y\n" * 20_000 + VALID, []),
        (VALID + "    proxy: {nodes: [" + ", ".join(["zz"] * 20_000) + "]}\n", ["DGC114 18:13"]),
        (
            changed(("hosts: {n1: 10.0.0.1, n2: 10.0.0.2}", "count: 4096")).replace(
                "    big:",
                "    b1: &b\n      count: 4096\n      accelerator: {type: mi300x, per_node: 8}\n    b2: *b\n    b3: *b\n    b4: *b\n    big:",
            ),
            ["DGC114 4:3"],
        ),
        ("? " * 100_000, ["DGC105 1:131"]),
        ("[" * 1_000_000, ["DGC102 1:1001"]),
        (VALID + "#" + " #" * 500_000 + "\n", []),
    ],
    ids=["comments", "long list", "many nodes", "deep keys", "brackets", "hashes"],
)
def test_large_and_odd_texts_cost_little(text: str, expected: list[str]) -> None:
    start = time.process_time()
    assert said(loaded(text)) == expected
    assert time.process_time() - start < 3


@given(st.binary(max_size=300))
def test_no_bytes_raise(content: bytes) -> None:
    outcome = loaded(content)
    assert outcome.value is None
    assert outcome.diagnostics
    assert all(diagnostic.span is not None for diagnostic in outcome.diagnostics)


_LINES = VALID.splitlines(keepends=True)
_NOISE = [
    "\t",
    "{",
    "[",
    ": ",
    "'",
    '"',
    "~",
    "-1",
    "[]",
    "{}",
    "\n",
    "#",
    "1e3",
    "&a ",
    "*a",
    "0",
    "null",
    "  ",
    "\r",
    "|\n",
]


@st.composite
def _damaged(draw: st.DrawFn) -> str:
    """The valid spec with pieces lost, doubled or put in the wrong place."""
    lines = list(_LINES)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["drop", "double", "insert", "indent", "move"])):
            case "drop":
                del lines[at]
            case "double":
                lines.insert(at, lines[at])
            case "insert":
                column = draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:column] + draw(st.sampled_from(_NOISE)) + lines[at][column:]
            case "indent":
                lines[at] = "  " + lines[at]
            case _:
                lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
    return "".join(lines)


@given(_damaged())
def test_no_damage_raises_and_every_finding_has_a_place_in_the_file(text: str) -> None:
    outcome = loaded(text)
    assert outcome.value is not None or outcome.diagnostics
    count = len(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    for diagnostic in outcome.diagnostics:
        assert diagnostic.span is not None
        assert diagnostic.span.file == NAME
        assert 1 <= diagnostic.span.line <= count
        assert (
            diagnostic.message[:1] == "`"
            or diagnostic.message[:1].islower()
            or diagnostic.message[:1].isdigit()
        )
