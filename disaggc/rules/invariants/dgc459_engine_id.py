"""A pinned engine id, or a handshake that is switched off.

With a pinned id a restarted prefill engine looks like the old one and decode reads from addresses that are gone.
With the compatibility check off, engines that do not match exchange KV and answers are wrong with HTTP 200.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.rules.planned import options, replicas, service_path, transfer
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule

_NAMED_BEFOREHAND = ("nixl-push", "mooncake")
"""Here decode must be told the identity before prefill has answered; there is no other way than to pin it."""


def check(planned: Planned) -> Iterator[Finding]:
    """`engine_id` anywhere in the transfer configuration; `enforce_handshake_compat` other than true."""
    for service, _, replica in replicas(planned.plan):
        config = transfer(replica)
        if config is None:
            continue
        extra = options(config)
        needed = service.connector is not None and service.connector.type in _NAMED_BEFOREHAND
        if "engine_id" in extra or ("engine_id" in config and not needed):
            yield Finding(
                f"{replica.address} pins `engine_id`; peers cannot tell a restart", service_path(service)
            )
        if extra.get("enforce_handshake_compat", True) is not True:
            yield Finding(f"{replica.address} switches the handshake's check off", service_path(service))


RULE = PlanRule(
    "DGC459",
    "engine-id",
    Severity.ERROR,
    check,
    sources=("https://github.com/ray-project/ray/issues/65756",),
    fails=(
        (
            Edit(
                "services/chat/pools/decode/replicas/0/arguments/--kv-transfer-config",
                '{"engine_id":"d0","kv_connector":"NixlConnector","kv_role":"kv_consumer",'
                '"kv_connector_extra_config":{"kv_lease_duration":30}}',
            ),
        ),
    ),
)
