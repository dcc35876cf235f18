"""Entries of models.toml -> ModelFacts through the same reader as any config.json. Knows aliases and `base` entries."""

from __future__ import annotations

from typing import Any

from disaggc.catalog.facts import ModelFacts
from disaggc.catalog.model_config import model_from_mapping
from disaggc.catalog.tables import Table

_OWN_KEYS = frozenset({"source", "base"})


def _section_of(table: Table, name: str) -> str | None:
    """The section an id or alias stands for."""
    found = table.aliases().get(name, name)
    return found if found in table.names else None


def model_facts(table: Table, name: str) -> ModelFacts | None:
    """The facts of a catalog model under the name that was asked for; None where there is none."""
    found = _section_of(table, name)
    if found is None:
        return None
    config, source = _config(table, found)
    outcome = model_from_mapping(config, source, name)
    if outcome.value is None:
        raise ValueError(f"catalog entry {found} is broken: {[d.message for d in outcome.diagnostics]}")
    return outcome.value


def _config(table: Table, name: str) -> tuple[dict[str, Any], str]:
    section = dict(table.get(name) or {})
    source = str(section.get("source", ""))
    base: dict[str, Any] = {}
    if "base" in section:
        base, base_source = _config(table, section["base"])
        source = source or base_source
    return {**base, **{k: v for k, v in section.items() if k not in _OWN_KEYS}}, source
