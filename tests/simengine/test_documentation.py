"""docs/sim-engine.md says what is: every fault, moment, field, own flag and admin path of the double."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from disaggc.simengine import engine, frontend, options
from disaggc.simengine.faults import Fault, Kind, When, read_fault
from disaggc.simengine.sundries import SMALL

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "sim-engine.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("word", [*Kind, *When])
def test_every_fault_and_moment_has_its_line(word):
    assert f"| `{word}` | " in TEXT


def test_every_field_of_a_fault_is_named():
    assert [name for name in Fault.model_fields if f"`{name}`" not in TEXT] == []


def test_own_flags_and_their_defaults():
    rows = dict(re.findall(r"^\| `--([a-z-]+)[ A-Z]*` \| (.*?) \|", TEXT, re.MULTILINE))
    assert set(rows) == set(options._OWN)
    assert {n: v for n, v in options._OWN.items() if v} == {n: rows[n] for n, v in options._OWN.items() if v}


def test_every_path_of_the_admin_port_is_listed():
    source = Path(engine.__file__).read_text(encoding="utf-8")
    paths = re.findall(r"case \"(GET|POST|DELETE)\", \"(/\w+)\"", source)
    assert len(paths) == 6
    assert [p for p in paths if f"| `{p[0]} {p[1]}` |" not in TEXT] == []


def test_every_path_of_the_api_is_named():
    cases = re.findall(
        r"case ((?:\"/[\w/]+\"(?: \| )?)+):", Path(frontend.__file__).read_text(encoding="utf-8")
    )
    paths = [*frontend.GENERATION, *SMALL, *re.findall(r"/[\w/]+", " ".join(cases))]
    assert len(paths) == 23
    paths[paths.index("/v1/chat/completions/batch")] = "/batch"
    assert [path for path in paths if f"`{path}`" not in TEXT] == []


def test_the_examples_are_faults():
    bodies = re.findall(r"curl -d '(\{.*?\})'", TEXT)
    assert len(bodies) == 2
    for body in bodies:
        assert json.loads(read_fault(body.encode()).model_dump_json(exclude_unset=True)) == json.loads(body)
