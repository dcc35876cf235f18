"""`--kv-transfer-config` as vLLM reads it: unknown keys stop the engine, unknown options of the connector do not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CONNECTOR_KEYS = {
    "kv_connector", "engine_id", "kv_buffer_device", "kv_role", "kv_port", "kv_connector_extra_config",
    "kv_connector_module_path", "enable_permute_local_kv", "kv_load_failure_policy",
}  # fmt: skip
_CONNECTORS = {
    "NixlConnector": "nixl", "NixlPullConnector": "nixl", "NixlPushConnector": "nixl-push",
    "MooncakeConnector": "mooncake", "MoRIIOConnector": "moriio",
}  # fmt: skip


class OptionError(ValueError):
    """The command line cannot be served; the message says why."""


@dataclass(frozen=True, slots=True)
class Connector:
    """The KV connector as configured. dialect: nixl, nixl-push, mooncake, moriio."""

    dialect: str
    role: str
    engine_id: str | None
    fail: bool
    """Whether a failed load fails the request; otherwise the prompt is computed here."""
    extra: Mapping[str, Any]

    def seconds(self, key: str, default: float) -> float:
        """A duration among the connector's own options."""
        value = self.extra.get(key, default)
        return float(value) if isinstance(value, int | float) else default


def read_connector(texts: list[str] | None) -> Connector | None:
    """The connector of the last of the texts; None without one. OptionError as vLLM would refuse it."""
    if not texts:
        return None
    try:
        said = json.loads(texts[-1])
    except ValueError:
        raise OptionError(f"--kv-transfer-config is not JSON: {texts[-1]}") from None
    if not isinstance(said, dict):
        raise OptionError("--kv-transfer-config is not a JSON object")
    if unknown := sorted(set(said) - _CONNECTOR_KEYS):
        raise OptionError(f"--kv-transfer-config: unexpected keyword argument `{unknown[0]}`")
    dialect = _CONNECTORS.get(str(said.get("kv_connector")))
    if dialect is None:
        raise OptionError(f"the double does not speak connector {said.get('kv_connector')}")
    if said.get("kv_role") not in ("kv_producer", "kv_consumer", "kv_both"):
        raise OptionError("`kv_role` is one of kv_producer, kv_consumer, kv_both")
    extra = said.get("kv_connector_extra_config") or {}
    if dialect == "moriio" and extra.get("read_mode"):
        dialect = "moriio-read"
    return Connector(
        dialect=dialect,
        role=said["kv_role"],
        engine_id=said.get("engine_id"),
        fail=said.get("kv_load_failure_policy", "fail") == "fail",
        extra=extra,
    )
