"""What plan, build and explain share: read lock and history beside the spec, run the pipeline."""

from __future__ import annotations

from disaggc.cli.history import last_build, lock_path
from disaggc.cli.progress import Bar
from disaggc.compilation import Compiled, Request
from disaggc.pipeline import compile_plan


def compiled(request: Request, bar: Bar, *, upgrade: bool) -> Compiled:
    """The plan of a spec, or what stands against it. `upgrade` leaves the lock aside."""
    spec = request.files[0]
    lock = None if upgrade else lock_path(spec)
    with bar.unmeasured("solving"):
        return compile_plan(request, lock=lock, history=lambda kind: last_build(spec, kind))
