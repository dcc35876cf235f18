"""Whatever is written into a valid spec, the front end answers with findings and never with an exception."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from disaggc.catalog.load import load_catalog
from disaggc.resolve.api import resolve
from disaggc.rules.checking import check
from disaggc.spec.load import load, place
from tests.effort import examples
from tests.spec.strategies import SPEC_NAME, reader_of, specs, text_of

_CATALOG = load_catalog()
_HOSTILE = [
    "",
    " ",
    "\n",
    "a\nb",
    '"',
    "'",
    "%",
    "$(x)",
    "${{x}}",
    "{{",
    "`",
    ";",
    "\0",
    "\u202e",
    "x" * 10_000,
    "../../etc",
    "-",
    "~",
]
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(_HOSTILE)
    | st.sampled_from(
        ["auto", "8K", "1e3", "200Gbit", "5/s", "10s", "30%", "24 USD/h", "config.json", "trace.csv"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["mean", "p50", "tp", "from", "a.b"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def _places(node: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    if isinstance(node, dict):
        for key, inner in node.items():
            found += _places(inner, (*path, key))
    elif isinstance(node, list):
        for index, inner in enumerate(node):
            found += _places(inner, (*path, index))
    return found


@st.composite
def _changed(draw: st.DrawFn) -> str:
    spec = draw(specs())
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(_places(spec)))
        node = spec
        for part in path[:-1]:
            node = node[part]
        node[path[-1]] = draw(_values)
    return text_of(spec)


@settings(
    max_examples=examples(150),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
@given(_changed())
def test_no_value_raises(text: str) -> None:
    read = reader_of(text)
    loaded = load([Path(SPEC_NAME)], read=read)
    if loaded.value is None:
        assert loaded.diagnostics
        return
    resolved = resolve(loaded.value, _CATALOG, read=read)
    found = resolved.diagnostics
    if resolved.value is not None:
        found += check(resolved.value)
    assert "DGC190" not in {diagnostic.code for diagnostic in found}, [d for d in found if d.code == "DGC190"]
    lines = text.count("\n") + 1
    for diagnostic in (*loaded.diagnostics, *place(found, loaded.value.sources)):
        assert diagnostic.span is not None
        assert 1 <= diagnostic.span.line <= lines
        assert len(diagnostic.message) < 1500
