"""What the console script starts: the command line, with the collector set for a process that lives a second."""

from __future__ import annotations

import gc
import sys

_FEW_COLLECTIONS = 100_000
"""Allocations between two looks for garbage. Compiling allocates much and drops little: the default of 700 costs a
tenth of a second and finds nothing. Servers still collect, only less often."""


def run() -> None:
    """Console script `disaggc`."""
    gc.set_threshold(_FEW_COLLECTIONS, 20, 50)
    from disaggc.cli.main import main

    sys.exit(main(sys.argv[1:]))
