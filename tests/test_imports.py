"""What a command may load: --help and validate stay light, plan loads no web framework."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "deepseek-r1-mi300x" / "disaggc.yaml"

PROBE = """
import json, sys
from disaggc.cli.main import main
code = main(sys.argv[1:])
sys.stdout.flush()
sys.stderr.write("\\nLOADED " + json.dumps([code, sorted({name.split(".")[0] for name in sys.modules})]))
"""


def loaded(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    code, names = json.loads(done.stderr.rpartition("LOADED ")[2])
    assert code == 0, done.stderr
    return set(names)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("plan", "--help"),
        ("--version",),
        ("schema",),
        ("validate", str(EXAMPLE)),
        ("validate", str(EXAMPLE), "--format", "sarif"),
        ("catalog", "accelerators"),
        ("explain", "DGC312"),
    ],
    ids=" ".join,
)
def test_light_commands_load_nothing_heavy(arguments):
    heavy = {
        "ortools",
        "numpy",
        "pandas",
        "aiohttp",
        "scipy",
        "uvloop",
        "httptools",
        "jinja2",
        "rich",
        "asyncio",
    }
    assert not loaded(*arguments) & heavy


def test_help_loads_neither_pydantic_nor_yaml():
    assert not loaded("--help") & {"pydantic", "yaml", "jinja2"}


def test_plan_loads_the_solver_but_no_network_code():
    names = loaded("plan", str(EXAMPLE), "--refresh=false", "-q")
    assert "ortools" in names
    assert not names & {"aiohttp", "uvloop", "httptools"}
