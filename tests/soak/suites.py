"""Parts that are tests of the suite, tried for much longer: every property test, the fuzz of the front and the table."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.soak.part import Part

FUZZ_MINUTES = 10.0
"""Of each of the two files."""


def _pytest(*words: str, **environment: str) -> tuple[str, list[str]]:
    """(last line, names of the tests that failed)."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-rfE", "--no-header", *words],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    sys.stderr.write(ran.stdout[-20_000:] + ran.stderr[-5_000:] if ran.returncode else "")
    faults = re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    lines = ran.stdout.strip().splitlines() or ["no output"]
    return lines[-1].strip("= "), faults or ([lines[-1]] if ran.returncode else [])


def laws() -> Part:
    """Each property test with ten times its examples, drawn anew."""
    said, faults = _pytest(
        "-n",
        "2",
        "--dist",
        "worksteal",
        "-m",
        "hypothesis and not testbed and not bench",
        HYPOTHESIS_PROFILE="soak",
    )
    return Part("property tests, ten times the examples", said, tuple(faults))


def fuzz() -> Part:
    """The front and the routing file."""
    seconds = 2 * FUZZ_MINUTES * 60
    said, faults = _pytest("-n", "2", "tests/fuzz", DISAGGC_FUZZ_SECONDS=str(seconds))
    return Part(
        f"fuzz of the HTTP front and of the routing file, {FUZZ_MINUTES:g} min each", said, tuple(faults)
    )
