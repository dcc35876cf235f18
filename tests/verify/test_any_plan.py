"""Whatever is solved is sound, is written for its target, keeps under its own lock and comes out the same again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from disaggc.catalog.load import load_catalog
from disaggc.compilation import Compiled, Request
from disaggc.diagnostics import Severity
from disaggc.pipeline import compile_plan
from tests.effort import examples
from tests.spec.strategies import Spec, specs, write_spec

CATALOG = load_catalog()
NO_ANSWER = {"DGC501", "DGC502"}
NOT_ON_THIS_TARGET = {"DGC602"}
"""One HTTP port for all engines is asked for, and they share a node."""


def compiled(spec: Path, lock: Path | None = None) -> Compiled:
    return compile_plan(
        Request((spec,), files_wanted=True), lock=lock, history=lambda _target: None, catalog=CATALOG
    )


@settings(max_examples=examples(4), deadline=None, suppress_health_check=list(HealthCheck))
@given(specs())
def test_a_solved_plan_verifies_emits_and_repeats(spec: Spec) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_spec(Path(folder), spec)
        first = compiled(path)
        wrong = {d.code for d in first.report.diagnostics if d.severity is Severity.ERROR}
        assert wrong <= NO_ANSWER | NOT_ON_THIS_TARGET, first.report.diagnostics
        if wrong:
            return
        assert first.lock_text is not None
        again, lock = compiled(path), Path(folder) / "disaggc.lock"
        assert again.artifacts == first.artifacts
        lock.write_text(first.lock_text)
        kept = compiled(path, lock)
        assert kept.artifacts == first.artifacts
        assert kept.lock_text == first.lock_text
