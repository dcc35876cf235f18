"""Where the bundled proxies run, with which limits, and which prompts they keep from prefill."""

from __future__ import annotations

from collections.abc import Sequence

from disaggc.ir.plan import Deadlines, FromSecret, Overcommit, ProxyInstance, ProxyPlan
from disaggc.resolve.model import ResolvedService
from disaggc.solve.lower.lifecycle import PROXY_IDLE_S
from disaggc.spec.model import ApiKeyEnv, ApiKeyFile, ApiKeyKubernetes

_SHORTEST_SHARE = 0.5
"""Share of a class's short prompts up to which a prompt may skip prefill: lengths given as one number vary."""


def skip_below(service: ResolvedService, break_even: int) -> int:
    """Prompt tokens below which decode prefills alone: the break-even, but less than the planned prompts have.

    The break-even holds for one prompt beside the planned load. Were the load itself to skip, decode would do the work
    that prefill was sized for. A log-normal's 10 % quantile stands for the short ones: p50 x p50 / p90.
    """
    shortest = min(load.isl.p50 * load.isl.p50 / load.isl.p90 for load in service.classes)
    return min(break_even, int(shortest * _SHORTEST_SHARE))


def proxy_plan(
    service: ResolvedService,
    ports: tuple[int, int | None],
    nodes: Sequence[str],
    *,
    taken: set[tuple[str, int]],
    drain_s: int,
    limits: tuple[Overcommit, Deadlines],
) -> ProxyPlan:
    """The proxy of one service. nodes: candidates in order; taken: (node, port) pairs in use, extended here.

    Proxies go to different nodes, and to nodes where no other service's proxy has the port, as long as there are any.
    ports: administration, metrics. limits: of admission, of times.
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
        admin_port=ports[0],
        metrics_port=ports[1],
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
        overcommit=limits[0],
        deadlines=limits[1],
        because=(f"services.{service.name}.proxy",),
    )
