"""How rules read what a user gave an engine: settings and environment with their places, aliases resolved.

Knows which role a value reaches and where it is written; judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from disaggc.catalog.engines import EngineSnapshot, FlagFacts
from disaggc.diagnostics import FieldPath
from disaggc.resolve.model import ClassLoad, ResolvedService, ResolvedSpec, RoleChoices
from disaggc.spec.model import SecretRef, SettingValue

RoleName = Literal["prefill", "decode"]
ROLES: tuple[RoleName, ...] = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class GivenFlag:
    """One setting as written. flag: vLLM's own name (aliases resolved). negated: written as `no-...`.

    key: part of a JSON flag where the name is dotted (`compilation-config.level`), else "". facts: None when unknown.
    """

    written: str
    flag: str
    key: str
    negated: bool
    value: SettingValue
    path: FieldPath
    roles: tuple[RoleName, ...]
    facts: FlagFacts | None

    @property
    def on(self) -> bool:
        """For a boolean flag: whether it switches the feature on."""
        return (self.value is True) is not self.negated

    @property
    def off(self) -> bool:
        """For a boolean flag: whether it switches the feature off."""
        return isinstance(self.value, bool) and not self.on


@dataclass(frozen=True, slots=True)
class GivenEnv:
    """One environment variable as written."""

    name: str
    value: str | SecretRef
    path: FieldPath
    roles: tuple[RoleName, ...]

    @property
    def text(self) -> str:
        """The literal value; empty for a secret."""
        return self.value if isinstance(self.value, str) else ""


def at(service: ResolvedService, *parts: str | int) -> FieldPath:
    """Path of a field of the service."""
    return ("services", service.name, *parts)


def flags(service: ResolvedService) -> Iterator[GivenFlag]:
    """Every setting of the service, both roles' first, in the order written."""
    for path, roles, settings in _settings(service):
        for written, value in settings.items():
            yield _flag(service.snapshot, (*path, written), roles=roles, value=value)


def flags_named(service: ResolvedService, *names: str) -> Iterator[GivenFlag]:
    """The settings whose resolved name is one of these."""
    return (given for given in flags(service) if given.flag in names)


def effective(service: ResolvedService, role: RoleName) -> dict[str, GivenFlag]:
    """What reaches one role's engines, by resolved name; its own settings win. Unset (null) values are absent."""
    found = {given.flag: given for given in flags(service) if role in given.roles and not given.key}
    return {flag: given for flag, given in found.items() if given.value is not None}


def env(service: ResolvedService) -> Iterator[GivenEnv]:
    """Every environment variable of the service, both roles' first, in the order written."""
    engine = service.given.engine
    for name, value in engine.env.items():
        yield GivenEnv(name, value, at(service, "engine", "env", name), ROLES)
    for role in ROLES:
        part = engine.prefill if role == "prefill" else engine.decode
        for name, value in part.env.items():
            yield GivenEnv(name, value, at(service, "engine", role, "env", name), (role,))


def effective_env(service: ResolvedService, role: RoleName) -> dict[str, GivenEnv]:
    """What reaches one role's engines, by name; the role's own variables win."""
    return {given.name: given for given in env(service) if role in given.roles}


def choices(service: ResolvedService, role: RoleName) -> RoleChoices:
    """The shapes the role may take."""
    return service.prefill if role == "prefill" else service.decode


def class_loads(resolved: ResolvedSpec) -> Iterator[tuple[ResolvedService, ClassLoad, str | None]]:
    """Every class of every service, then those that a scenario changes, with the scenario's name."""
    for service in resolved.services:
        for load in service.classes:
            yield service, load, None
    for scenario in resolved.scenarios:
        for service, changed in zip(resolved.services, scenario.services, strict=True):
            for load in changed.classes:
                if load not in service.classes:
                    yield changed, load, scenario.name


def load_path(service: ResolvedService, load: ClassLoad, scenario: str | None, *field: str) -> FieldPath:
    """The class's field, or the scenario that changes it."""
    return at(service, "workload", load.name, *field) if scenario is None else ("scenarios", scenario)


def transfers_kv(service: ResolvedService) -> bool:
    """Whether the service may be laid out as prefill and decode; only then do connector rules matter."""
    return service.mode != "colocated"


def version(service: ResolvedService) -> tuple[int, ...]:
    """The vLLM version the spec pins, as numbers."""
    parts = service.given.engine.vllm.split(".")[:3]
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in parts)


def _settings(
    service: ResolvedService,
) -> Iterator[tuple[FieldPath, tuple[RoleName, ...], Mapping[str, SettingValue]]]:
    engine = service.given.engine
    yield at(service, "engine", "settings"), ROLES, engine.settings
    yield at(service, "engine", "prefill", "settings"), ("prefill",), engine.prefill.settings
    yield at(service, "engine", "decode", "settings"), ("decode",), engine.decode.settings


def _flag(
    snapshot: EngineSnapshot, path: FieldPath, *, roles: tuple[RoleName, ...], value: SettingValue
) -> GivenFlag:
    written = str(path[-1])
    use = snapshot.flag(written)
    if use is None:
        name, _, key = written.replace("_", "-").partition(".")
        return GivenFlag(written, name, key, negated=False, value=value, path=path, roles=roles, facts=None)
    return GivenFlag(
        written,
        use.flag.name,
        use.key or "",
        negated=use.negated,
        value=value,
        path=path,
        roles=roles,
        facts=use.flag,
    )
