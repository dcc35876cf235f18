"""What one vLLM version accepts: flags, environment names, connectors and their option keys, and what it took away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlagFacts:
    """One `vllm serve` flag. name without dashes; kind: bool, int, float, str, json, list, choice.

    aliases: other spellings (`tp`); negations: spellings that switch a bool off (`no-enable-prefix-caching`).
    """

    name: str
    kind: str
    aliases: tuple[str, ...]
    default: str | None
    choices: tuple[str, ...]
    negations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConnectorFacts:
    """One KV connector in one version."""

    name: str
    family: str
    """nixl, nixl-push, mooncake, moriio, or other."""
    option_keys: frozenset[str]
    supports_hma: bool


@dataclass(frozen=True, slots=True)
class FlagUse:
    """What a spelling means: the flag, whether it switches it off, and the key inside a JSON flag (`a.b`)."""

    flag: FlagFacts
    negated: bool = False
    key: str | None = None


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """One vLLM version. version: the snapshot's own; exact: whether it is the version that was asked for.

    removed_*: names that earlier versions took and this one does not, with what became of them.
    kv_transfer_keys: fields of `--kv-transfer-config`; any other stops the engine at start.
    """

    version: tuple[int, int, int]
    exact: bool
    flags: Mapping[str, FlagFacts]
    env_names: frozenset[str]
    connectors: Mapping[str, ConnectorFacts]
    source: str
    kv_transfer_keys: frozenset[str] = frozenset()
    removed_flags: Mapping[str, str] | None = None
    removed_env: Mapping[str, str] | None = None
    removed_connectors: Mapping[str, str] | None = None
    removed_kv_transfer_keys: Mapping[str, str] | None = None

    @property
    def text(self) -> str:
        """`0.33.0`."""
        return ".".join(map(str, self.version))

    def flag(self, spelling: str) -> FlagUse | None:
        """The flag a user means: `--no-x`, `x_y` for `x-y`, an alias, a dotted key of a JSON flag; None = unknown."""
        name, _, key = spelling.lstrip("-").partition(".")
        name = name.replace("_", "-")
        direct = self.flags.get(name)
        if direct is not None:
            return FlagUse(direct, key=key or None) if not key or direct.kind == "json" else None
        if key:
            base = self.flag(name)
            return FlagUse(base.flag, key=key) if base is not None and base.flag.kind == "json" else None
        for flag in self.flags.values():
            if name in flag.aliases:
                return FlagUse(flag)
            if name in flag.negations:
                return FlagUse(flag, negated=True)
        return None

    def connector_of(self, family: str) -> ConnectorFacts | None:
        """The connector to write for a family: its plain name where the version has it."""
        members = [c for c in self.connectors.values() if c.family == family]
        return min(members, key=lambda c: (len(c.name), c.name), default=None)
