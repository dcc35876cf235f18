"""Variables that must never reach an engine.

Development endpoints, expandable segments together with KV transfer, and secrets in clear: the same that a spec may
not say, checked once more on what was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.plan import Pool, Replica
from disaggc.rules.planned import moves_kv, replicas, service_path, text
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule

_SECRET = re.compile(r"(^|_)(TOKEN|PASSWORD|PASSWD|SECRET|API_KEY|ACCESS_KEY)$")


def check(planned: Planned) -> Iterator[Finding]:
    """Every literal variable of every replica."""
    for service, pool, replica in replicas(planned.plan):
        for problem in _problems(pool, replica):
            yield Finding(f"{replica.address} {problem}", service_path(service))


def _problems(pool: Pool, replica: Replica) -> Iterator[str]:
    for variable in replica.env:
        value = text(variable.value)
        if not value:
            continue
        if variable.name == "VLLM_SERVER_DEV_MODE" and value != "0":
            yield "opens development endpoints"
        if (
            variable.name.endswith("_ALLOC_CONF")
            and "expandable_segments:true" in value.lower()
            and moves_kv(pool)
        ):
            yield f"has expandable segments in {variable.name}, which RDMA cannot register"
        if _SECRET.search(variable.name) and not value.startswith("/"):
            yield f"has a secret in clear in {variable.name}"


RULE = PlanRule(
    "DGC636",
    "unsafe-environment",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/envs.py:1468", "https://github.com/vllm-project/vllm/issues/41237"),
    fails=(
        (Edit("services/chat/pools/decode/replicas/0/env/VLLM_SERVER_DEV_MODE", "1"),),
        (
            Edit(
                "services/chat/pools/decode/replicas/0/env/PYTORCH_ALLOC_CONF",
                "expandable_segments:True",
            ),
        ),
        (Edit("services/chat/pools/decode/replicas/0/env/HF_TOKEN", "abc"),),
    ),
)
