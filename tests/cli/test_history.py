from __future__ import annotations

import os
import stat
import threading

import pytest

from disaggc.cli.history import last_build, record_path, write_atomically
from disaggc.cli.main import main
from tests.examples.targets import copied


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    """The same holds for /dev/null: a rename onto it would take it from the whole machine."""
    pipe, heard = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    write_atomically(pipe, "text")
    reader.join(timeout=10)
    assert heard == ["text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_stays_a_link_and_its_file_is_written(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "ahead").symlink_to("not-yet")
    write_atomically(tmp_path / "link", "new")
    write_atomically(tmp_path / "ahead", "made")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "not-yet").read_text() == "made"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "plan").write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(tmp_path / "plan", "new \ud800")
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]
    assert (tmp_path / "plan").read_text() == "old"


@pytest.mark.parametrize("content", ["", "[" * 100_000, "\0", "null", '{"schema": "disaggc.last-build/v1"}'])
def test_a_record_that_cannot_be_read_is_no_history(tmp_path, content):
    spec = tmp_path / "disaggc.yaml"
    path = record_path(spec, "systemd")
    path.parent.mkdir()
    path.write_text(content)
    assert last_build(spec, "systemd") is None
    path.unlink()
    os.mkfifo(path)
    assert last_build(spec, "systemd") is None


@pytest.mark.parametrize("verb", ["plan", "build"])
def test_an_empty_out_is_wrong_usage_not_the_working_directory(tmp_path, monkeypatch, capsys, verb):
    spec = copied("gpt-oss-120b-single-node", tmp_path / "oss")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert main([verb, str(spec), "--out", ""]) == 64
    assert "the path is empty" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
