"""The JSON Schemas of the outputs are generated from the types, and every output of the examples keeps them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from disaggc.cli.views import (
    bench_plan_json,
    build_json,
    calibrate_json,
    catalog_json,
    explain_json,
    init_json,
    local_json,
    models_json,
    plan_json,
    schema_json,
    simulate_json,
    smoke_json,
)

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = {
    "bench-plan": bench_plan_json.BenchPlanDocument,
    "build": build_json.BuildDocument,
    "calibrate": calibrate_json.CalibrateDocument,
    "catalog-accelerators": catalog_json.AcceleratorsDocument,
    "catalog-connectors": catalog_json.ConnectorsDocument,
    "catalog-engines": catalog_json.EnginesDocument,
    "catalog-fabrics": catalog_json.FabricsDocument,
    "catalog-model": models_json.ModelDocument,
    "catalog-models": models_json.ModelsDocument,
    "explain": explain_json.ExplainDocument,
    "init": init_json.InitDocument,
    "page": explain_json.PageDocument,
    "local": local_json.LocalDocument,
    "plan": plan_json.PlanDocument,
    "schemas": schema_json.SchemasDocument,
    "smoke": smoke_json.SmokeDocument,
    "simulate": simulate_json.SimulateDocument,
}


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_output_schema_is_current(name, regen_golden):
    path = ROOT / "schemas" / f"{name}.v1.json"
    wanted = json.dumps(DOCUMENTS[name].json_schema(), indent=2) + "\n"
    if regen_golden:
        path.write_text(wanted)
    assert path.read_text() == wanted, "run `make schemas` and review the difference"


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_schema_name_is_in_the_document(name):
    field = DOCUMENTS[name].json_schema()["properties"]["schema"]
    assert field["const"] == f"disaggc.{name}/v1"


def test_no_schema_file_is_left_over():
    known = {f"{name}.v1.json" for name in (*DOCUMENTS, "spec", "diagnostics", "routing")}
    assert {path.name for path in (ROOT / "schemas").iterdir()} <= known
