"""KV memory fixed in bytes on the strength of an estimate.

`--kv-cache-memory-bytes` switches vLLM's own measuring off. It is exact after a calibration and an out-of-memory
crash under load when the estimate is off. On CPUs there is nothing to measure: the engine would take its share of all
the host's memory, whatever else runs there.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.rules.planned import argument, replicas, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """The flag on an accelerator's engine in a plan that was made without a calibration."""
    if planned.plan.provenance.calibration is not None:
        return
    for service, pool, replica in replicas(planned.plan):
        if pool.vendor != "cpu" and argument(replica, "kv-cache-memory-bytes") is not None:
            yield Finding(
                f"{replica.address} fixes `--kv-cache-memory-bytes` without a calibration; it may run out of memory",
                service_path(service),
            )


RULE = PlanRule(
    "DGC332",
    "kv-bytes-on-prior",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/cache.py:374",),
    fails=((Edit("services/chat/pools/decode/replicas/0/arguments/--kv-cache-memory-bytes", "1000000000"),),),
)
