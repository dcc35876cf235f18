"""Where the bundled proxies run and with which limits."""

from __future__ import annotations

from collections.abc import Sequence

from disaggc.ir.plan import FromSecret, ProxyInstance, ProxyPlan
from disaggc.resolve.model import ResolvedService
from disaggc.solve.lower.lifecycle import PROXY_IDLE_S
from disaggc.spec.model import ApiKeyEnv, ApiKeyFile, ApiKeyKubernetes


def proxy_plan(
    service: ResolvedService,
    admin_port: int,
    nodes: Sequence[str],
    *,
    taken: set[tuple[str, int]],
    drain_s: int,
) -> ProxyPlan:
    """The proxy of one service. nodes: candidates in order; taken: (node, port) pairs in use, extended here.

    Proxies go to different nodes, and to nodes where no other service's proxy has the port, as long as there are any.
    """
    given = service.given.proxy
    free = [node for node in nodes if (node, given.port) not in taken]
    chosen = (free or list(nodes))[: given.replicas]
    taken.update((node, given.port) for node in chosen)
    key = given.api_key
    return ProxyPlan(
        instances=tuple(
            ProxyInstance(address=f"{service.name}/proxy/{i}", node=node) for i, node in enumerate(chosen)
        ),
        port=given.port,
        admin_port=admin_port,
        api_key=FromSecret(name=key.env) if isinstance(key, ApiKeyEnv) else None,
        api_key_file=key.file if isinstance(key, ApiKeyFile) else None,
        api_key_secret=(
            (key.kubernetes_secret.name, key.kubernetes_secret.key)
            if isinstance(key, ApiKeyKubernetes)
            else None
        ),
        image=given.image,
        command=given.command,
        policy=given.policy,
        on_prefill_failure=given.on_prefill_failure,
        drain_s=drain_s,
        idle_s=PROXY_IDLE_S,
        because=(f"services.{service.name}.proxy",),
    )
