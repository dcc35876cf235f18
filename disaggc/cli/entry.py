"""What the console script starts: the command line, with streams that can be written to and a late collector."""

from __future__ import annotations

import gc
import os
import sys
from io import TextIOWrapper

_FEW_COLLECTIONS = 100_000
"""Allocations between two looks for garbage. Compiling allocates much and drops little: the default of 700 costs a
tenth of a second and finds nothing. Servers still collect, only less often."""
_INTERRUPTED = 130


def run() -> None:
    """Console script `disaggc`."""
    gc.set_threshold(_FEW_COLLECTIONS, 20, 50)
    try:
        _prepare_streams()
        from disaggc.cli.main import main

        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        # Loading the verbs takes a while too; main answers for everything after that.
        sys.stderr.write("interrupted\n")
        code = _INTERRUPTED
    except ImportError as problem:
        # As above: what the verbs need to load at all, before main can say anything.
        from disaggc.cli.crash import broken_installation

        fault = broken_installation(problem)
        if fault is None:
            raise
        sys.stderr.write(fault)
        code = 1
    sys.exit(code)


def _prepare_streams() -> None:
    """No stream is missing and none refuses a character.

    A closed descriptor would go to the next file that is opened, and what a child process prints with it. A locale
    without the characters of a message shows their code points.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 - lives as long as the process
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
