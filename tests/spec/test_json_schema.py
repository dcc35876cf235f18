from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter, ValidationError

from disaggc.resources import shipped
from disaggc.spec import quantities
from disaggc.spec.json_schema import FILE, schema_text, spec_schema
from disaggc.spec.shape import ANY, paths, spec_shape

PRODUCT = Path(__file__).parent / "data" / "product.yaml"
_SCHEMA = spec_schema()
_VALIDATOR = Draft202012Validator(_SCHEMA)


def _product() -> dict[str, Any]:
    return yaml.safe_load(PRODUCT.read_text())


def test_the_shipped_schema_is_current(regen_golden: bool) -> None:  # noqa: FBT001 - a fixture
    file = shipped("schemas") / FILE
    if regen_golden:
        file.write_text(schema_text())
    assert file.read_text() == schema_text(), "run `make schemas`"


def test_it_is_a_schema_of_its_dialect() -> None:
    Draft202012Validator.check_schema(_SCHEMA)


def test_the_example_of_the_product_passes() -> None:
    assert [error.message for error in _VALIDATOR.iter_errors(_product())] == []


def _broken() -> Iterator[tuple[str, dict[str, Any]]]:
    def changed(change: Any) -> dict[str, Any]:
        spec = _product()
        change(spec)
        return spec

    yield "unknown field", changed(lambda s: s.update(optimise="cost"))
    yield "missing field", changed(lambda s: s["services"]["chat"].pop("model"))
    yield "missing part", changed(lambda s: s.pop("cluster"))
    yield "wrong unit", changed(lambda s: s["cluster"]["fabric"].update(speed_per_nic="200Gb"))
    yield "wrong choice", changed(lambda s: s["cluster"]["fabric"].update(type="myrinet"))
    yield (
        "wrong name",
        changed(lambda s: s["cluster"]["nodes"].update({"Bad Name": s["cluster"]["nodes"]["mi300x"]})),
    )
    yield (
        "wrong host",
        changed(lambda s: s["cluster"]["nodes"]["mi300x"]["hosts"].update({"a b": "10.0.0.9"})),
    )
    yield (
        "wrong type",
        changed(lambda s: s["services"]["chat"]["workload"]["reasoning"].update(concurrency="many")),
    )
    yield (
        "wrong length",
        changed(lambda s: s["services"]["chat"]["workload"]["reasoning"].update(input_tokens={"p50": 3})),
    )
    yield "from elsewhere", changed(lambda s: s["services"].update({"from": "x.yaml"}))
    yield "from a number", changed(lambda s: s["services"]["chat"].update(workload={"from": 3}))


@pytest.mark.parametrize(
    ("_name", "spec"), list(_broken()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_broken_one_does_not(_name: str, spec: dict[str, Any]) -> None:
    assert list(_VALIDATOR.iter_errors(spec))


@pytest.mark.parametrize(
    "place", ["cluster", "services.chat", "services.chat.workload", "services.chat.workload.reasoning"]
)
def test_from_may_stand_where_it_is_followed(place: str) -> None:
    spec = _product()
    *parents, last = place.split(".")
    node = spec
    for part in parents:
        node = node[part]
    node[last] = {"from": "part.yaml"}
    assert [error.message for error in _VALIDATOR.iter_errors(spec)] == []


def test_every_field_has_a_description() -> None:
    bare = []
    for name, definition in [("Spec", _SCHEMA), *_SCHEMA["$defs"].items()]:
        bare += [
            f"{name}.{field}"
            for field, inner in definition["properties"].items()
            if not inner.get("description")
        ]
    assert bare == []


def test_every_field_of_the_model_stands_in_the_schema() -> None:
    known = {
        name for definition in [_SCHEMA, *_SCHEMA["$defs"].values()] for name in definition["properties"]
    }
    assert {path[-1] for path in paths(spec_shape()) if path[-1] != ANY} <= known


_KINDS = ("Size", "Speed", "Duration", "DurationOrAuto", "Flops", "Rate", "Share", "Money")
_TEXTS = st.one_of(
    st.from_regex(r"\A\s?\+?[0-9]{1,4}(\.[0-9]{1,2})?([eE][+-]?[0-9])?\s?[kKMGTP]?i?(B|bit|b)(/s)?\s?\Z"),
    st.from_regex(r"\A[0-9_]{1,4}(\.[0-9])? ?(us|ms|s|sec|m|min|h|d)\Z"),
    st.from_regex(r"\A([0-9]{1,2}(h|m|min|s|ms) ?){1,3}\Z"),
    st.from_regex(r"\A[0-9]{1,4} ?[kMGTP]?(FLOPS|FLOP/s|OPS)\Z"),
    st.from_regex(r"\A[0-9]{1,4} ?(req|requests)? ?/ ?(s|sec|m|min|h|d)\Z"),
    st.from_regex(r"\A[0-9]{1,3}(\.[0-9]{1,2})?( rps| ?%)?\Z"),
    st.from_regex(r"\A[0-9]{1,4} ?(USD|EUR) ?/ ?(h|d|month)\Z"),
    st.text(max_size=8),
)


@given(st.sampled_from(_KINDS), _TEXTS)
def test_a_quantity_that_is_read_matches_its_pattern(kind: str, text: str) -> None:
    """An editor never marks what disaggc takes."""
    adapter: TypeAdapter[Any] = TypeAdapter(getattr(quantities, kind))
    try:
        adapter.validate_python(text)
    except ValidationError:
        return
    validator = Draft202012Validator(adapter.json_schema())
    assert [error.message for error in validator.iter_errors(text)] == []


def test_the_file_is_plain_json_with_one_line_end() -> None:
    text = schema_text()
    assert text.endswith("}\n")
    assert text.isascii()
    assert json.loads(text)["$id"] == "urn:disaggc:schema:spec:v1"
