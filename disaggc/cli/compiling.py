"""What plan, build and explain share: read lock and history beside the spec, run the pipeline."""

from __future__ import annotations

from pathlib import Path

from disaggc.cli.history import last_build, lock_path
from disaggc.cli.options import Target
from disaggc.compilation import Compiled, Request
from disaggc.pipeline import compile_plan


def compiled(
    files: tuple[Path, ...], sets: tuple[str, ...], *, target: Target | None, upgrade: bool
) -> Compiled:
    """The plan of a spec, or what stands against it."""
    request = Request(files, sets, target.value if target else None)
    lock = None if upgrade else lock_path(files[0])
    return compile_plan(request, lock=lock, history=lambda kind: last_build(files[0], kind))
