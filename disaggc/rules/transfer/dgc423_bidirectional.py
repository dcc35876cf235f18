"""KV handed back from decode to prefill.

With `bidirectional_kv_xfer` prefill reuses what decode generated. Clients that strip the reasoning from the history
send another prefix than the one that was kept, and wrong KV is reused; after its time to live garbage was read.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at, effective, transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """The option switched on: error with a reasoning parser, warning without."""
    for service in resolved.services:
        options = service.given.engine.connector.options
        if options.get("bidirectional_kv_xfer") is not True or not transfers_kv(service):
            continue
        reasons = "reasoning-parser" in effective(service, "decode")
        yield Finding(
            "`bidirectional_kv_xfer` reuses KV by position; "
            + ("clients strip the reasoning and wrong KV is reused" if reasons else "it is experimental"),
            at(service, "engine", "connector", "options", "bidirectional_kv_xfer"),
            help="remove it",
            severity=Severity.ERROR if reasons else Severity.WARNING,
        )


RULE = SpecRule(
    "DGC423",
    "bidirectional",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/vllm-project/vllm/issues/43094",
        "https://github.com/vllm-project/vllm/pull/47021",
    ),
    fails=(
        """
        services:
          chat:
            engine:
              settings: {reasoning-parser: deepseek_r1}
              connector: {options: {bidirectional_kv_xfer: true}}
        #                                                  ^ DGC423
        """,
    ),
    passes=("services: {chat: {engine: {connector: {options: {bidirectional_kv_xfer: false}}}}}",),
)
