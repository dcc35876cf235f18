"""Two services whose proxies want one port on one host.

On systemd, compose and local, proxies listen on the hosts themselves; the second one would not start.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Label, Severity
from disaggc.resolve.model import ResolvedService, ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Equal `proxy.port` of two services that may share a host, where the target is systemd, compose or local."""
    if resolved.target not in ("systemd", "compose", "local"):
        return
    seen: list[ResolvedService] = []
    for service in resolved.services:
        port, nodes = service.given.proxy.port, service.given.proxy.nodes
        for other in seen:
            theirs = other.given.proxy.nodes
            named = nodes is not None and theirs is not None and resolved.target != "local"
            apart = named and not set(nodes or ()) & set(theirs or ())
            if other.given.proxy.port == port and not apart:
                yield Finding(
                    f"`proxy.port` {port} of {service.name} is also that of {other.name}; on one host only one starts",
                    at(service, "proxy", "port"),
                    help=f"write another port, e.g. `port: {port + 1}`, or disjoint `proxy.nodes`",
                    labels=(Label(at(other, "proxy", "port"), f"the port of {other.name}"),),
                )
                break
        seen.append(service)


RULE = SpecRule(
    "DGC804",
    "proxy-port-twice",
    Severity.ERROR,
    check,
    sources=("https://github.com/llm-d/llm-d-benchmark/issues/878",),
    fails=(
        """
        services:
          code:
            model: {id: meta-llama/Llama-3.1-8B, weights: /models/llama}
            workload: {fill: {input_tokens: 512, output_tokens: 64, rate: 1/s}}
            engine: {vllm: 0.33.0, command: /opt/vllm/bin/vllm}
            proxy: {port: 8000, api_key: {env: CODE_API_KEY}}
        #                 ^ DGC804
        """,
    ),
    passes=(
        """
        services:
          code:
            model: {id: meta-llama/Llama-3.1-8B, weights: /models/llama}
            workload: {fill: {input_tokens: 512, output_tokens: 64, rate: 1/s}}
            engine: {vllm: 0.33.0, command: /opt/vllm/bin/vllm}
            proxy: {port: 8001, api_key: {env: CODE_API_KEY}}
        """,
    ),
    suppressible=False,
)
