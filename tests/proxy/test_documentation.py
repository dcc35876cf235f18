"""docs/data-plane.md says what is: its routing file loads, and no path, metric, deadline or choice is left out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from disaggc.proxy import admin
from disaggc.proxy.board import Board
from disaggc.proxy.exposition import PREFIX, render, render_pairs, render_tables
from disaggc.routing.limits import Timeouts
from disaggc.routing.table import Dialect, Policy, RoutingTable, load_table

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "data-plane.md").read_text(encoding="utf-8")


def example() -> RoutingTable:
    found = re.search(r"```jsonc\n(.*?)```", TEXT, re.DOTALL)
    assert found is not None
    return load_table(re.sub(r"\s+// .*", "", found[1]))


def test_the_example_is_a_routing_file():
    table = example()
    assert table.classes["interactive"].priority > table.classes["batch"].priority
    assert table.default_class in table.classes


def test_the_example_shows_most_fields():
    shown = set(json.loads(example().model_dump_json(exclude_unset=True)))
    assert set(RoutingTable.model_fields) - shown <= {"fingerprint", "proxies", "limits", "log", "engine_tls"}


def words(*kinds: object) -> list[str]:
    return [str(word) for kind in kinds for word in kind]


@pytest.mark.parametrize(
    "word", words(Dialect, Policy, get_args(RoutingTable.model_fields["on_prefill_failure"].annotation))
)
def test_every_choice_is_named(word):
    assert re.search(rf"\b{re.escape(word)}\b", TEXT)


def test_every_deadline_is_explained():
    assert [
        name for name in Timeouts.model_fields if f"`{name}`" not in TEXT and f"timeouts.{name}`" not in TEXT
    ] == []


def test_every_metric_is_listed_and_no_other():
    page = (
        render(Board.create(1), ("c",), {"r": 0}, generation=1)
        + render_pairs({}, [])
        + render_tables({}, rejected=False)
    )
    real = {name.removeprefix(PREFIX) for name in re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)}
    listed = set(
        re.findall(r"^\| `(\w+)`(?: by [\w, ]+)? \|", TEXT[TEXT.index("## Metrics") :], re.MULTILINE)
    )
    assert listed == real


def test_every_path_of_administration_is_listed():
    source = Path(admin.__file__).read_text(encoding="utf-8")
    paths = re.findall(r"web\.(get|put|post)\(\"([^\"]+)", source)
    assert len(paths) > 8
    assert [p for p in paths if f"`{p[0].upper()} {p[1]}" not in TEXT] == []
