from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from disaggc.cli.outdir import RECORD, OutputError, write_tree
from disaggc.emit.artifacts import Artifact, ArtifactSet


def tree(**texts: str) -> ArtifactSet:
    named = {path.replace("__", "/"): text for path, text in texts.items()}
    return ArtifactSet(
        "systemd",
        tuple(Artifact(path, text, 0o640, "chat/x/0", "none") for path, text in sorted(named.items())),
    )


def contents(directory: Path) -> dict[str, str]:
    return {
        path.relative_to(directory).as_posix(): path.read_text()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != RECORD
    }


def test_writes_exactly_the_files_with_their_modes(tmp_path):
    out = tmp_path / "out"
    written = write_tree(out, tree(a="1\n", b__c="2\n"), fingerprint="f")
    assert contents(out) == {"a": "1\n", "b/c": "2\n"}
    assert written.created == ("a", "b/c")
    assert {(out / p).stat().st_mode & 0o777 for p in ("a", "b/c")} == {0o640}


def test_modes_do_not_depend_on_the_umask(tmp_path):
    old = os.umask(0o077)
    try:
        write_tree(tmp_path, tree(a="1"), fingerprint="f")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / RECORD).stat().st_mode & 0o777 == 0o644


def test_second_build_changes_only_what_differs_and_removes_its_own_stale_files(tmp_path):
    write_tree(tmp_path, tree(a="1", b="2", d__e="3"), fingerprint="f")
    stamp = (tmp_path / "a").stat().st_mtime_ns
    (tmp_path / "mine.txt").write_text("not yours")
    written = write_tree(tmp_path, tree(a="1", b="changed", c="new"), fingerprint="g")
    assert (written.created, written.changed, written.unchanged, written.removed) == (
        ("c",), ("b",), ("a",), ("d/e",),
    )  # fmt: skip
    assert contents(tmp_path) == {"a": "1", "b": "changed", "c": "new", "mine.txt": "not yours"}
    assert not (tmp_path / "d").exists()
    assert (tmp_path / "a").stat().st_mtime_ns == stamp


def test_record_is_the_same_for_the_same_files(tmp_path):
    write_tree(tmp_path / "one", tree(a="1", b="2"), fingerprint="f")
    write_tree(tmp_path / "two", tree(a="0", z="9"), fingerprint="e")
    write_tree(tmp_path / "two", tree(a="1", b="2"), fingerprint="f")
    assert (tmp_path / "one" / RECORD).read_bytes() == (tmp_path / "two" / RECORD).read_bytes()


def test_foreign_file_is_refused_and_nothing_is_written(tmp_path):
    (tmp_path / "b").write_text("not yours")
    with pytest.raises(OutputError, match="was not written by disaggc"):
        write_tree(tmp_path, tree(a="1", b="2"), fingerprint="f")
    assert contents(tmp_path) == {"b": "not yours"}
    assert not (tmp_path / RECORD).exists()


def test_a_link_is_never_followed_out_of_the_directory(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b").write_text("theirs")
    out = tmp_path / "out"
    out.mkdir()
    (out / "d").symlink_to(outside)
    with pytest.raises(OutputError, match="in the way"):
        write_tree(out, tree(d__b="2"), fingerprint="f")
    (out / "d").unlink()
    (out / "a").symlink_to(outside / "b")
    with pytest.raises(OutputError, match="was not written by disaggc"):
        write_tree(out, tree(a="1"), fingerprint="f")
    assert contents(outside) == {"b": "theirs"}


def test_file_replaced_by_a_link_is_taken_back(tmp_path):
    out, outside = tmp_path / "out", tmp_path / "theirs"
    outside.write_text("theirs")
    write_tree(out, tree(a="1"), fingerprint="f")
    (out / "a").unlink()
    (out / "a").symlink_to(outside)
    write_tree(out, tree(a="1"), fingerprint="f")
    assert not (out / "a").is_symlink()
    assert (outside.read_text(), (out / "a").read_text()) == ("theirs", "1")


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", RECORD])
def test_a_path_out_of_the_directory_is_a_bug(tmp_path, path):
    one = ArtifactSet("systemd", (Artifact(path, "x", 0o644, "chat", "none"),))
    with pytest.raises(ValueError, match="leaves its directory"):
        write_tree(tmp_path / "out", one, fingerprint="f")


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ("{", "damaged"),
        ("[]", "damaged"),
        ("[" * 100_000, "damaged"),
        ('{"schema": "disaggc.build-record/v9", "files": []}', "another version"),
        ('{"schema": "disaggc.build-record/v1", "files": [{"path": "../../etc/passwd"}]}', "outside"),
    ],
)
def test_a_bad_record_is_refused(tmp_path, record, says):
    (tmp_path / RECORD).write_text(record)
    with pytest.raises(OutputError, match=says):
        write_tree(tmp_path, tree(a="1"), fingerprint="f")


@pytest.mark.parametrize("name", [RECORD, "a"])
def test_a_pipe_in_the_way_is_refused_at_once(tmp_path, name):
    """Opening it would wait for a writer that never comes."""
    os.mkfifo(tmp_path / name)
    with pytest.raises(OutputError):
        write_tree(tmp_path, tree(a="1"), fingerprint="f")


@pytest.mark.parametrize("name", ["x" * 300, "file/below"])
def test_a_directory_that_cannot_be_is_said_so(tmp_path, name):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match=r"too long|ot a directory"):
        write_tree(tmp_path / name, tree(a="1"), fingerprint="f")


def test_a_directory_in_the_place_of_an_own_file(tmp_path):
    write_tree(tmp_path, tree(a="1", b="2"), fingerprint="f")
    (tmp_path / "b").unlink()
    (tmp_path / "b").mkdir()
    with pytest.raises(OutputError, match=r"`[^`]*/b` is in the way"):
        write_tree(tmp_path, tree(a="3", b="4"), fingerprint="g")
    assert (tmp_path / "a").read_text() == "1"


def test_a_file_in_the_place_of_the_directory(tmp_path):
    (tmp_path / "out").write_text("x")
    with pytest.raises(OutputError):
        write_tree(tmp_path / "out", tree(a="1"), fingerprint="f")


def test_killed_at_any_file_the_next_build_finishes(tmp_path, monkeypatch):
    import disaggc.cli.outdir as module

    before, after = tree(a="1", b="2", c="3"), tree(a="9", b="8", d="7", e="6")
    real, steps = module._replace, 6
    for last in range(steps):
        out = tmp_path / str(last)
        write_tree(out, before, fingerprint="f")
        done = 0

        def dying(place, text, mode, *, last=last):
            nonlocal done
            if done == last:
                raise KeyboardInterrupt
            done += 1
            real(place, text, mode)

        monkeypatch.setattr(module, "_replace", dying)
        with pytest.raises(KeyboardInterrupt):
            write_tree(out, after, fingerprint="g")
        monkeypatch.setattr(module, "_replace", real)
        write_tree(out, after, fingerprint="g")
        assert contents(out) == {"a": "9", "b": "8", "d": "7", "e": "6"}
        assert "stale" not in json.loads((out / RECORD).read_text())["files"][0]
