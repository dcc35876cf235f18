"""An API key from a place that the target does not have.

A Kubernetes Secret exists in a cluster only; a file path of a host does not exist in a pod. Target local, which tries
out plans of other targets, takes the variable DISAGGC_API_KEY in place of a Secret.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.spec.model import ApiKeyFile, ApiKeyKubernetes


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`kubernetes_secret` on systemd or compose; `file` on kubernetes, or not absolute."""
    for service in resolved.services:
        key = service.given.proxy.api_key
        if isinstance(key, ApiKeyKubernetes) and resolved.target in ("systemd", "compose"):
            yield Finding(
                f"`api_key.kubernetes_secret` does not exist on target {resolved.target}",
                at(service, "proxy", "api_key"),
                help="write `api_key: {file: /etc/disaggc/api-key}` or `{env: NAME}`",
            )
        elif isinstance(key, ApiKeyFile) and (
            resolved.target == "kubernetes" or not key.file.startswith("/")
        ):
            why = (
                "is a path of a host, pods have their own"
                if key.file.startswith("/")
                else "is not an absolute path"
            )
            yield Finding(
                f"`api_key.file` {why}",
                at(service, "proxy", "api_key", "file"),
                help="write `api_key: {kubernetes_secret: {name: ..., key: ...}}`"
                if resolved.target == "kubernetes"
                else "write e.g. `file: /etc/disaggc/api-key`",
            )


RULE = SpecRule(
    "DGC618",
    "key-source",
    Severity.ERROR,
    check,
    sources=("Kubernetes API: Secret",),
    fails=(
        """
        services:
          code:
            model: {id: meta-llama/Llama-3.1-8B, weights: /models/llama}
            workload: {fill: {input_tokens: 512, output_tokens: 64, rate: 1/s}}
            engine:
              vllm: 0.33.0
              command: /opt/vllm/bin/vllm
              image: example.org/vllm@sha256:2222222222222222222222222222222222222222222222222222222222222222
            proxy: {port: 8001, api_key: {kubernetes_secret: {name: chat, key: token}}}
        #                                ^ DGC618
        """,
        """
        target: kubernetes
        services:
          code:
            model: {id: meta-llama/Llama-3.1-8B, weights: /models/llama}
            workload: {fill: {input_tokens: 512, output_tokens: 64, rate: 1/s}}
            engine:
              vllm: 0.33.0
              command: /opt/vllm/bin/vllm
              image: example.org/vllm@sha256:2222222222222222222222222222222222222222222222222222222222222222
            proxy: {port: 8001, api_key: {file: /etc/key}}
        #                                       ^ DGC618
        """,
    ),
    passes=(
        """
        services:
          code:
            model: {id: meta-llama/Llama-3.1-8B, weights: /models/llama}
            workload: {fill: {input_tokens: 512, output_tokens: 64, rate: 1/s}}
            engine:
              vllm: 0.33.0
              command: /opt/vllm/bin/vllm
              image: example.org/vllm@sha256:2222222222222222222222222222222222222222222222222222222222222222
            proxy: {port: 8001, api_key: {file: /etc/key}}
        """,
        """
        target: local
        services:
          code:
            model: {id: meta-llama/Llama-3.1-8B, weights: /models/llama}
            workload: {fill: {input_tokens: 512, output_tokens: 64, rate: 1/s}}
            engine: {vllm: 0.33.0, command: /opt/vllm/bin/vllm}
            proxy: {port: 8001, api_key: {kubernetes_secret: {name: chat, key: token}}}
        """,
    ),
    suppressible=False,
)
