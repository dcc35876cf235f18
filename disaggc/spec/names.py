"""Field types of the spec that are names or texts with a grammar; each grammar with the sentence that explains it."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

T = TypeVar("T")

_NAME = r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"
_HOST = r"^[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?$"
_ADDRESS = r"^[0-9A-Za-z:.\-]{1,253}$"
_ENV = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
_FLAG = r"^[a-z0-9][a-z0-9.\-_]{0,79}$"
_CATALOG_ID = r"^[a-z0-9][a-z0-9.\-]{0,39}$"
_INTERFACE = r"^[A-Za-z0-9_.:\-]{1,15}$"
_DEVICE = r"^[A-Za-z0-9_.\-]{1,32}$"
_SEALED_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,126}$"
_VERSION = r"^\d+\.\d+\.\d+([a-z0-9.+\-]*)?$"
_KUBE_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_KUBE_NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
_KUBE_KEY = r"^[A-Za-z0-9_.\-]{1,253}$"
_KUBE_VERSION = r"^1\.\d{1,3}$"
_RESOURCE = r"^[a-z0-9.\-]+/[A-Za-z0-9_.\-]+$"
_UNIX_USER = r"^[a-z_][a-z0-9_\-]{0,31}$"
_DIRECTORY = r"^/[A-Za-z0-9_./\-]{0,200}$"
_METHOD = r"^[a-z0-9_\-]{1,40}$"

GRAMMARS: dict[str, str] = {
    _NAME: "a name has lower-case letters, digits and inner dashes, at most 40 of them",
    _HOST: "a host name has letters, digits, inner dashes and dots",
    _ADDRESS: "an address is an IPv4 or IPv6 address or a host name",
    _ENV: "an environment variable has letters, digits and `_`, and does not start with a digit",
    _FLAG: "a flag is written without leading dashes, in lower case, e.g. `max-model-len`",
    _CATALOG_ID: "a catalog id has lower-case letters, digits, dots and dashes, e.g. `h100-sxm`",
    _INTERFACE: "a network interface has at most 15 letters, digits and `_.:-`",
    _DEVICE: "a device name has at most 32 letters, digits and `_.-`, e.g. `mlx5_0`",
    _SEALED_NAME: "a secret's name has letters, digits and `_.-`",
    _VERSION: "a vLLM version has three parts, e.g. `0.33.0`",
    _KUBE_LABEL: "a Kubernetes label name has lower-case letters, digits and inner dashes, at most 63",
    _KUBE_NAME: "a Kubernetes object name has lower-case letters, digits, inner dashes and dots",
    _KUBE_KEY: "a Secret's key has letters, digits and `_.-`",
    _KUBE_VERSION: 'a Kubernetes version has two parts and is quoted, e.g. `"1.33"`',
    _RESOURCE: "an extended resource has a domain and a name, e.g. `nvidia.com/gpu`",
    _UNIX_USER: "a system user has lower-case letters, digits, `_` and `-`, at most 32",
    _DIRECTORY: "a directory is an absolute path of letters, digits and `_./-`",
    _METHOD: "a method has lower-case letters, digits, `_` and `-`, e.g. `eagle3`",
}
"""Pattern -> what it means, for messages."""

Name = Annotated[str, StringConstraints(pattern=_NAME)]
"""A name that every target can carry: lower-case letters, digits and dashes, at most 40."""
HostName = Annotated[str, StringConstraints(pattern=_HOST)]
Address = Annotated[str, StringConstraints(pattern=_ADDRESS)]
EnvName = Annotated[str, StringConstraints(pattern=_ENV)]
FlagName = Annotated[str, StringConstraints(pattern=_FLAG)]
CatalogId = Annotated[str, StringConstraints(pattern=_CATALOG_ID)]
Interface = Annotated[str, StringConstraints(pattern=_INTERFACE)]
Device = Annotated[str, StringConstraints(pattern=_DEVICE)]
SecretName = Annotated[str, StringConstraints(pattern=_SEALED_NAME)]
Version = Annotated[str, StringConstraints(pattern=_VERSION)]
KubeLabel = Annotated[str, StringConstraints(pattern=_KUBE_LABEL)]
KubeName = Annotated[str, StringConstraints(pattern=_KUBE_NAME)]
KubeKey = Annotated[str, StringConstraints(pattern=_KUBE_KEY)]
KubeVersion = Annotated[str, StringConstraints(pattern=_KUBE_VERSION)]
Resource = Annotated[str, StringConstraints(pattern=_RESOURCE)]
UnixUser = Annotated[str, StringConstraints(pattern=_UNIX_USER)]
Directory = Annotated[str, StringConstraints(pattern=_DIRECTORY)]
Method = Annotated[str, StringConstraints(pattern=_METHOD)]
ModelId = Annotated[str, StringConstraints(min_length=1, max_length=255)]
ImageText = Annotated[str, StringConstraints(min_length=1, max_length=512)]
PathText = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Port = Annotated[int, Field(ge=1, le=65535)]
Listed = Annotated[tuple[T, ...], Field(strict=False)]
"""A YAML list, kept as a tuple."""

_SETTING_DEPTH = 4
Scalar = bool | int | float | str
_SettingShape = Scalar | list[Scalar] | dict[str, Scalar | list[Scalar] | dict[str, Scalar]] | None


def _setting(value: object, depth: int = 0) -> object:
    """One check for the whole shape, so that a wrong value gives one error and not one for each branch."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth < _SETTING_DEPTH and isinstance(value, list):
        return [_setting(item, depth + 1) for item in value]
    if depth < _SETTING_DEPTH and isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _setting(item, depth + 1) for key, item in value.items()}
    raise PydanticCustomError("setting", "a number, a text, a list or a mapping with text keys is wanted")


_SETTING_SCHEMA: dict[str, Any] = {
    "description": "A number, a text, true or false, null, a list or a mapping (written to the engine as JSON).",
    "type": ["boolean", "number", "string", "array", "object", "null"],
}
SettingValue = Annotated[_SettingShape, PlainValidator(_setting), WithJsonSchema(_SETTING_SCHEMA)]


class Part(BaseModel):
    """A piece of the spec: frozen, no unknown fields. Built when first used, its field docs read when asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)
