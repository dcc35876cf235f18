"""A VLLM_ variable that the pinned vLLM does not read.

vLLM only warns about an unknown VLLM_ name. The engines are started with `--fail-on-environ-validation`, so a
mistyped one stops them at start instead of being ignored for weeks; here it is found earlier.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.owned import OWNED_ENV
from disaggc.rules.given import env
from disaggc.rules.rule import Finding, SpecRule
from disaggc.spec.near import nearest


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """VLLM_ names that are in no snapshot, removal or ownership table."""
    for service in resolved.services:
        known = service.snapshot.env_names
        for given in env(service):
            if not given.name.startswith("VLLM_") or given.name in known:
                continue
            if given.name in (service.snapshot.removed_env or {}) or given.name in OWNED_ENV:
                continue
            close = nearest(given.name, known)
            yield Finding(
                f"`{given.name}` is not a variable of vLLM {service.given.engine.vllm}; engines would not start",
                given.path,
                help=f"write `{close}`" if close else "remove it",
                at_key=True,
            )


RULE = SpecRule(
    "DGC215",
    "unknown-env",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/envs.py, vllm/platforms/interface.py:1458, vllm/engine/arg_utils.py:871",),
    fails=(
        """
        services: {chat: {engine: {env: {VLLM_LOGING_LEVEL: DEBUG}}}}
        #                                ^ DGC215
        """,
    ),
    passes=("services: {chat: {engine: {env: {VLLM_LOGGING_LEVEL: DEBUG, HF_HUB_OFFLINE: '1'}}}}",),
)
