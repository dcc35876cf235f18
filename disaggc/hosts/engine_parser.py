"""Runs an installed vLLM's own argument parser in a process of its own. Knows command lines, no plan and no rules."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROBE = Path(__file__).with_name("vllm_probe.py")
VARIABLE = "DISAGGC_VLLM_PYTHON"
LIMIT_S = 300.0
"""Importing vLLM takes 6 s on a quiet machine and was seen to take 61 s on a busy one."""


_QUIET = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "VLLM_TARGET_DEVICE": "cpu",
}
"""No network, no telemetry, and no search for a device: builds for accelerators refuse to start without one."""


class ProbeError(Exception):
    """There is no such vLLM, or it could not be asked; the message says why."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What follows `vllm serve`, and its variables. configure: also let vLLM build its whole configuration."""

    words: tuple[str, ...]
    env: Mapping[str, str]
    configure: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """stage: parse, check, arguments or config where it stopped; ok when it did not. message: vLLM's own words."""

    stage: str
    message: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The version that judged, and one verdict for each line."""

    version: str
    verdicts: tuple[Verdict, ...]


def installed(environ: Mapping[str, str]) -> str | None:
    """Interpreter of the vLLM that may be asked unbidden: the one the variable names, else our own if it has vLLM.

    Never one that a spec names: checking a stranger's spec must not run a program of theirs.
    """
    named = environ.get(VARIABLE)
    if named:
        return named
    return sys.executable if importlib.util.find_spec("vllm") is not None else None


def beside(command: str) -> str | None:
    """Interpreter of the environment that a `vllm` executable stands in, if there is one on this machine."""
    found = shutil.which(command)
    if found is None:
        return None
    for name in ("python3", "python"):
        python = Path(found).parent / name
        if os.access(python, os.X_OK):
            return str(python)
    return None


def judge(python: str, lines: Sequence[CommandLine], environ: Mapping[str, str]) -> Judgement:
    """VLLM's verdict on every line. Without an accelerator it judges as on a CPU, which the caller must allow for."""
    asked = {
        "lines": [{"words": line.words, "env": dict(line.env), "configure": line.configure} for line in lines]
    }
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter the caller chose, our own file
            [python, str(PROBE)],
            input=json.dumps(asked),
            env={**_QUIET, **environ},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except OSError as problem:
        raise ProbeError(f"`{python}` cannot be run: {problem.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ProbeError(f"vLLM's parser did not answer within {LIMIT_S:.0f} s") from None
    try:
        said = json.loads(done.stdout.strip().splitlines()[-1])
        verdicts = tuple(Verdict(str(one["stage"]), str(one["message"])) for one in said["verdicts"])
        version = str(said["version"])
    except (IndexError, ValueError, KeyError, TypeError):
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ProbeError(f"vLLM's parser could not be asked: {reason}") from None
    if len(verdicts) != len(lines):
        raise ProbeError(f"vLLM's parser judged {len(verdicts)} of {len(lines)} command lines")
    return Judgement(version, verdicts)
