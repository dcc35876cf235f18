"""Every example on every target it fits, as reviewed trees under tests/golden; `make golden` writes them anew."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from disaggc.cli.main import main
from disaggc.cli.outdir import RECORD
from tests.examples.targets import EXAMPLES, FITTING, ROOT, Case, cases, copied

GOLDEN = ROOT / "tests" / "golden"


def build(case: Case, workplace: Path) -> Path:
    """The tree of a case, built in a copy of the example, so that neither lock nor state reaches the checkout."""
    copy = copied(case.files[0].parent.name, workplace / "spec").parent
    out = workplace / f"out-{case}"
    files = [str(copy / path.name) for path in case.files]
    assert main(["build", *files, "--target", case.target, "--out", str(out), "-q"]) == 0
    return out


_STAMP = re.compile(r"sha256:(?!0{64})[0-9a-f]{64}")
"""Fingerprints of plan and spec. Any changed number changes them in every file; that bytes are stable is tested apart."""


def contents(tree: Path) -> dict[str, str]:
    return {
        path.relative_to(tree).as_posix(): _STAMP.sub("sha256:(digest)", path.read_text(encoding="utf-8"))
        for path in sorted(tree.rglob("*"))
        if path.is_file() and path.name != RECORD
    }


@pytest.mark.parametrize("case", cases(), ids=str)
def test_golden(case, tmp_path, regen_golden):
    built = contents(build(case, tmp_path))
    kept = GOLDEN / case.name / case.target
    if regen_golden:
        shutil.rmtree(kept, ignore_errors=True)
        for path, text in built.items():
            (kept / path).parent.mkdir(parents=True, exist_ok=True)
            (kept / path).write_text(text, encoding="utf-8")
    golden = contents(kept)
    assert sorted(built) == sorted(golden), "files appeared or went away: run `make golden` and review"
    for path in built:
        assert built[path] == golden[path], f"{path}: run `make golden` and review"


def test_no_golden_tree_is_stale(regen_golden):
    wanted = {(case.name, case.target) for case in cases()}
    kept = {(path.parent.name, path.name) for path in GOLDEN.glob("*/*")}
    if regen_golden:
        for name, target in kept - wanted:
            shutil.rmtree(GOLDEN / name / target)
        kept &= wanted
    assert kept == wanted


def test_every_example_is_listed():
    assert {path.parent.name for path in EXAMPLES.glob("*/disaggc.yaml")} == set(FITTING)
    assert {path.name for path in EXAMPLES.iterdir()} == set(FITTING)


@pytest.mark.parametrize("name", sorted(FITTING))
def test_every_example_says_what_to_learn(name):
    assert "Learn from it:" in (EXAMPLES / name / "README.md").read_text()
