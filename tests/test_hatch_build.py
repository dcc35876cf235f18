"""What the build hook makes of an environment, without a build: tests/testbed/test_compiled_wheel.py has those."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def build(monkeypatch):
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / ".ci" / "hatch_build.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("DISAGGC_PURE", "DISAGGC_COMPILE", "CC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "_obstacle", lambda: "")
    return module


@pytest.fixture
def hook(build):
    return build.CompiledWheel(str(ROOT), {"modules": ["disaggc.a"]}, *[None] * 4)


def data() -> dict[str, Any]:
    return {"force_include": {}, "pure_python": True, "infer_tag": False}


def refuse(*arguments):
    pytest.fail(f"compiled {arguments}")


def test_what_is_compiled_is_added_and_gone_when_the_wheel_is_written(build, hook, monkeypatch, capsys):
    seen = []

    def compiled(root, modules, work):
        seen.append((root, modules, work))
        (work / "a.so").write_bytes(b"")
        return {str(work / "a.so"): "disaggc/a.so"}

    monkeypatch.setattr(build, "compiled", compiled)
    found = data()
    hook.initialize("standard", found)
    ((root, modules, work),) = seen
    assert (root, modules) == (ROOT, ["disaggc.a"])
    assert ROOT not in work.parents
    assert found == {
        "force_include": {str(work / "a.so"): "disaggc/a.so"},
        "pure_python": False,
        "infer_tag": True,
    }
    assert (work / "a.so").exists()
    hook.finalize("standard", found, "a.whl")
    assert not work.exists()
    assert capsys.readouterr().err == "disaggc: 1 modules of the proxy compiled\n"


@pytest.mark.parametrize("name", ["DISAGGC_PURE", "DISAGGC_COMPILE", "HOME"])
def test_an_editable_install_is_never_compiled(build, hook, monkeypatch, capsys, name):
    monkeypatch.setenv(name, "1")
    monkeypatch.setattr(build, "compiled", refuse)
    found = data()
    hook.initialize("editable", found)
    assert found == data()
    assert capsys.readouterr().err == ""


def test_sources_alone_where_that_is_asked_for(build, hook, monkeypatch, capsys):
    monkeypatch.setenv("DISAGGC_PURE", "1")
    monkeypatch.setattr(build, "compiled", refuse)
    found = data()
    hook.initialize("standard", found)
    assert found == data()
    assert capsys.readouterr().err == "disaggc: sources alone, as DISAGGC_PURE says\n"
    assert hook.dependencies() == []


def raising(problem):
    def compiled(root, modules, work):
        del root, modules, work
        raise problem

    return compiled


@pytest.mark.parametrize("full", [False, True])
def test_a_failure_leaves_the_sources_and_one_line(build, hook, monkeypatch, capsys, full):
    problem = OSError(28, "No space left on device") if full else build.CompileError("gcc fell over", "log\n")
    monkeypatch.setattr(build, "compiled", raising(problem))
    found = data()
    hook.initialize("standard", found)
    assert found == data()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"disaggc: sources alone, not compiled: {problem} (DISAGGC_COMPILE=1 ")


def test_a_failure_is_an_error_with_its_log_where_compiling_is_asked_for(build, hook, monkeypatch, capsys):
    monkeypatch.setenv("DISAGGC_COMPILE", "1")
    problem = build.CompileError("gcc fell over", "first line\ngcc fell over\n")
    monkeypatch.setattr(build, "compiled", raising(problem))
    with pytest.raises(SystemExit) as stopped:
        hook.initialize("standard", data())
    assert stopped.value.code == 1
    assert "first line\ngcc fell over\ndisaggc: not compiled: gcc fell over\n" in capsys.readouterr().err


def test_both_wishes_at_once_are_an_error(hook, monkeypatch):
    monkeypatch.setenv("DISAGGC_COMPILE", "1")
    monkeypatch.setenv("DISAGGC_PURE", "1")
    with pytest.raises(SystemExit):
        hook.initialize("standard", data())


def test_what_compiling_needs_is_asked_for_only_where_it_can_be_tried(build, hook, monkeypatch):
    assert [text.split(">")[0] for text in hook.dependencies()] == ["mypy", "setuptools"]
    monkeypatch.setenv("DISAGGC_PURE", "0")
    assert hook.dependencies() != []
    monkeypatch.setattr(build, "_obstacle", lambda: "there is no C compiler")
    assert hook.dependencies() == []


def test_without_a_compiler_nothing_is_tried(build, monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    monkeypatch.setattr(build, "_run", refuse)
    with pytest.raises(build.CompileError, match=r"^there is no C compiler \(no-such-compiler\)$"):
        build.compiled(ROOT, ["disaggc.a"], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_only_sources_are_copied(build, monkeypatch, tmp_path):
    package = tmp_path / "disaggc"
    (package / "proxy").mkdir(parents=True)
    for name in ("__init__.py", "proxy/a.py", "proxy/a.cpython-311-x86_64-linux-gnu.so", "proxy/a.c"):
        (package / name).touch()

    def run(*_arguments, cwd):
        copied = {path.relative_to(cwd).as_posix() for path in cwd.rglob("*") if path.is_file()}
        assert copied == {"disaggc/__init__.py", "disaggc/proxy/a.py"}
        raise build.CompileError("seen")

    monkeypatch.setattr(build, "_run", run)
    with pytest.raises(build.CompileError, match="seen"):
        build.compiled(tmp_path, ["disaggc.proxy.a"], tmp_path / "work")


def test_a_module_that_was_not_made_is_a_failure(build, monkeypatch, tmp_path):
    def run(arguments, *, cwd):
        del arguments
        (cwd.parent / "made").mkdir(exist_ok=True)

    (tmp_path / "disaggc").mkdir()
    monkeypatch.setattr(build, "_run", run)
    with pytest.raises(build.CompileError, match=r"made is not what is listed: .*disaggc/proxy/a"):
        build.compiled(tmp_path, ["disaggc.proxy.a"], tmp_path / "work")


def test_the_last_line_of_a_process_is_the_reason(build, tmp_path):
    with pytest.raises(build.CompileError) as failed:
        build._run(["-c", "import sys; print('first'); sys.exit('error: the last  ')"], cwd=tmp_path)
    assert str(failed.value) == "the last"
    assert failed.value.log.splitlines()[0] == "first"
    with pytest.raises(build.CompileError, match="exit code 3"):
        build._run(["-c", "raise SystemExit(3)"], cwd=tmp_path)
