"""Every text of a plan that a user chose freely, each checked against what the target's format can carry (DGC603)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from disaggc.diagnostics.model import Diagnostic, FieldPath, error, path_text
from disaggc.emit.quoting import UnsafeTextError, process_text
from disaggc.ir.plan import Because, DeploymentPlan, FromSecret, Literally, Pool, ServicePlan

Kind = Literal[
    "argument",
    "positional",
    "variable",
    "variable-name",
    "executable",
    "image",
    "secret",
    "key-file",
    "weights",
    "name",
    "address",
]

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.\-]{0,251}[A-Za-z0-9])?")
_SECRET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,126}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@\-]{0,511}")


@dataclass(frozen=True, slots=True)
class FreeText:
    """One text, what it is, and the field it came from."""

    text: str
    kind: Kind
    path: FieldPath


def free_texts(plan: DeploymentPlan) -> Iterator[FreeText]:
    """All of them; the same text may come up once for every replica."""
    for node in plan.nodes:
        yield FreeText(node.name, "name", ("cluster", "nodes", node.group, "hosts"))
        if node.address is not None:
            yield FreeText(node.address, "address", ("cluster", "nodes", node.group, "hosts", node.name))
    for service in plan.services:
        yield from _of_service(service, ("services", service.name))


def _of_service(service: ServicePlan, at: FieldPath) -> Iterator[FreeText]:
    yield FreeText(service.name, "name", at)
    weights: FieldPath = (*at, "model", "weights" if service.model.path != service.model.id else "id")
    yield FreeText(service.model.path, "positional", weights)
    if service.model.path.startswith("/"):
        yield FreeText(service.model.path, "weights", weights)
    if service.engine.command is not None:
        yield FreeText(service.engine.command, "executable", (*at, "engine", "command"))
    yield from _of_proxy(service, (*at, "proxy"))
    for pool in service.pools:
        yield from _of_pool(pool, at)


def _of_proxy(service: ServicePlan, at: FieldPath) -> Iterator[FreeText]:
    proxy = service.proxy
    if proxy.command is not None:
        yield FreeText(proxy.command, "executable", (*at, "command"))
    if proxy.image is not None:
        yield FreeText(proxy.image, "image", (*at, "image"))
    if proxy.api_key_file is not None:
        yield FreeText(proxy.api_key_file, "key-file", (*at, "api_key", "file"))
    if isinstance(proxy.api_key, FromSecret):
        yield FreeText(proxy.api_key.name, "variable-name", (*at, "api_key", "env"))


def _of_pool(pool: Pool, at: FieldPath) -> Iterator[FreeText]:
    yield FreeText(pool.address.rpartition("/")[2], "name", at)
    if pool.image is not None:
        yield FreeText(pool.image, "image", (*at, "engine", "image"))
    for replica in pool.replicas:
        for argument in replica.arguments:
            path = _path(argument.because, (*at, "engine", "settings", argument.flag.lstrip("-")))
            yield FreeText(argument.flag, "argument", path)
            kind: Kind = "positional" if argument.more else "argument"
            for value in (argument.value, *argument.more):
                if isinstance(value, Literally):
                    yield FreeText(value.value, kind, path)
        for variable in replica.env:
            path = _path(variable.because, (*at, "engine", "env", variable.name))
            yield FreeText(variable.name, "variable-name", path)
            if isinstance(variable.value, FromSecret):
                yield FreeText(variable.value.name, "secret", path)
            elif isinstance(variable.value, Literally):
                yield FreeText(f"{variable.name}={variable.value.value}", "variable", path)


def _path(because: Because, otherwise: FieldPath) -> FieldPath:
    return tuple(because[0].split(".")) if because else otherwise


def refused(plan: DeploymentPlan, checks: Mapping[Kind, Callable[[str], object]]) -> tuple[Diagnostic, ...]:
    """One DGC603 for each text that a check refuses; a kind without a check is not used by the target."""
    found: dict[tuple[FieldPath, str], Diagnostic] = {}
    for free in dict.fromkeys(free_texts(plan)):
        check = checks.get(free.kind)
        if check is None:
            continue
        try:
            check(free.text)
        except UnsafeTextError as problem:
            message = f"`{path_text(free.path)}` {problem}"
            found[(free.path, message)] = error("DGC603", message, free.path, help="use another text here")
    return tuple(found.values())


def no_flag(text: str) -> None:
    """A word that vllm must take for a value although no flag stands right before it."""
    if text.startswith("-"):
        raise UnsafeTextError("begins with a dash, so vllm would take it for a flag")
    process_text(text)


def plain_name(text: str) -> None:
    """A name of a host, service or pool: it becomes part of file names."""
    _match(_NAME, text, "is not a name of letters, digits, dots and dashes")


def secret_name(text: str) -> None:
    """A secret's name: it becomes a file name or a key."""
    _match(_SECRET, text, "is not a secret's name of letters, digits, `_`, `.` and `-`")


def variable_name(text: str) -> None:
    """The name of an environment variable."""
    _match(_VARIABLE, text, "is not the name of an environment variable")


def image_reference(text: str) -> None:
    """A container image as registries name them."""
    _match(_IMAGE, text, "is not an image reference: letters, digits and `.:/@_-` make one")


def host_address(text: str) -> None:
    """A literal IP address or a DNS name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        _match(_NAME, text, "is neither an IP address nor a DNS name")


def absolute_path(text: str) -> None:
    """A path that means the same wherever it is read."""
    if not text.startswith("/") or ".." in text.split("/"):
        raise UnsafeTextError("is not an absolute path without `..`")


def _match(pattern: re.Pattern[str], text: str, complaint: str) -> None:
    if pattern.fullmatch(text) is None:
        raise UnsafeTextError(complaint)
