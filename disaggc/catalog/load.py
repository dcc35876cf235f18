"""The catalog as the other stages see it: facts by name, each read from its file when first asked for.

Knows where facts stand, not what they mean; every answer is a frozen value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict

from disaggc.catalog.engine_files import engine_snapshot, engine_versions
from disaggc.catalog.engines import ConnectorFacts, EngineSnapshot
from disaggc.catalog.facts import AcceleratorFacts, FabricFacts, ModelFacts
from disaggc.catalog.hardware import NamedSpeed, accelerator_facts, fabric_facts, named_speeds
from disaggc.catalog.model_table import model_facts
from disaggc.catalog.tables import Table
from disaggc.diagnostics import Outcome

Fact = AcceleratorFacts | FabricFacts | ModelFacts | EngineSnapshot
"""Whatever a compile may use of the catalog."""


class Catalog:
    """All facts that ship with disaggc. Nothing is parsed before it is named."""

    def __init__(self) -> None:
        self._accelerators = Table("accelerators.toml")
        self._fabrics = Table("fabrics.toml")
        self._models: Table | None = None

    @property
    def accelerator_ids(self) -> tuple[str, ...]:
        """Ids without aliases, in file order."""
        return self._accelerators.names

    def accelerator(self, name: str) -> AcceleratorFacts | None:
        """The accelerator of that id or alias; None where there is none."""
        found = self._accelerators.aliases().get(name, name)
        section = self._accelerators.get(found) if found in self._accelerators.names else None
        return None if section is None else accelerator_facts(found, section)

    @property
    def fabrics(self) -> tuple[FabricFacts, ...]:
        """Every fabric type."""
        return tuple(fact for name in self._fabrics.names if (fact := self.fabric(name)) is not None)

    def fabric(self, name: str) -> FabricFacts | None:
        """The fabric of that type; None where there is none."""
        section = self._fabrics.get(name)
        return None if section is None else fabric_facts(name, section)

    def fabric_speeds(self, name: str) -> tuple[NamedSpeed, ...]:
        """Line rates of a fabric that people know by a name, slowest first."""
        section = self._fabrics.get(name)
        return () if section is None else named_speeds(section)

    @property
    def model_ids(self) -> tuple[str, ...]:
        """Hugging Face ids the catalog knows, without aliases."""
        return self._model_table().names

    def model(self, name: str) -> ModelFacts | None:
        """The model of that id or alias; None where there is none."""
        return model_facts(self._model_table(), name)

    def _model_table(self) -> Table:
        if self._models is None:
            self._models = Table("models.toml")
        return self._models

    @property
    def engine_versions(self) -> tuple[str, ...]:
        """VLLM versions with a snapshot, oldest first."""
        return engine_versions()

    def engine(self, version: str) -> Outcome[EngineSnapshot]:
        """The snapshot for a vLLM version: its own, or the nearest lower one (DGC204); older than all is DGC205."""
        return engine_snapshot(version)

    @property
    def connectors(self) -> tuple[ConnectorFacts, ...]:
        """KV connectors of the newest snapshot, by name."""
        newest = engine_snapshot(self.engine_versions[-1]).value
        return () if newest is None else tuple(newest.connectors[name] for name in sorted(newest.connectors))

    @staticmethod
    def digest(facts: Iterable[Fact]) -> str:
        """`sha256:...` over the facts a compile used, whatever their order; any changed figure changes it."""
        rows = sorted(
            {
                json.dumps([type(fact).__name__, asdict(fact)], sort_keys=True, default=_sorted)
                for fact in facts
            }
        )
        return "sha256:" + hashlib.sha256("\n".join(rows).encode()).hexdigest()


def _sorted(value: object) -> list[str]:
    if not isinstance(value, frozenset | set):
        raise TypeError(f"no canonical form of {type(value).__name__}")
    return sorted(value)


def load_catalog() -> Catalog:
    """The shipped catalog; costs two small file reads."""
    return Catalog()
