"""A flag that the compiler decides.

Sizes, ports, roles, ranks and names must agree between prefill, decode and the proxy. They follow from the plan; a
value set by hand on one engine would contradict what every other part was told.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.owned import OWNED_FLAGS
from disaggc.rules.given import flags
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Settings, under any alias or dotted form, that belong to the compiler."""
    for service in resolved.services:
        for given in flags(service):
            if given.flag in OWNED_FLAGS:
                name = f"`{given.written}`" + (f" (`{given.flag}`)" if given.flag != given.written else "")
                yield Finding(
                    f"{name} is decided by the compiler and cannot be set",
                    given.path,
                    help=OWNED_FLAGS[given.flag],
                    at_key=True,
                )


RULE = SpecRule(
    "DGC214",
    "owned-flag",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/vllm-project/vllm/issues/20119",
        "https://github.com/vllm-project/vllm/issues/25059",
        "https://github.com/vllm-project/vllm/issues/20965",
    ),
    fails=(
        """
        services: {chat: {engine: {settings: {port: 8001}}}}
        #                                     ^ DGC214
        """,
        """
        services:
          chat:
            engine:
              decode:
                settings: {tensor-parallel-size: 4}
        #                  ^ DGC214
        """,
    ),
    passes=("services: {chat: {constraints: {decode: {tp: [4]}}}}",),
    suppressible=False,
)
