"""What one vLLM version accepts: flags, environment names, connectors and their option keys, fixed and broken features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlagFacts:
    """One `vllm serve` flag. name without dashes; kind: bool, int, float, str, json, list, choice."""

    name: str
    kind: str
    aliases: tuple[str, ...]
    default: str | None
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConnectorFacts:
    """One KV connector in one version."""

    name: str
    family: str
    """nixl, nixl-push, mooncake, moriio, or other."""
    option_keys: frozenset[str]
    supports_hma: bool


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """One vLLM version. version: the snapshot's own; exact: whether it is the version that was asked for."""

    version: tuple[int, int, int]
    exact: bool
    flags: Mapping[str, FlagFacts]
    env_names: frozenset[str]
    connectors: Mapping[str, ConnectorFacts]
    source: str

    @property
    def text(self) -> str:
        """`0.33.0`."""
        return ".".join(map(str, self.version))
