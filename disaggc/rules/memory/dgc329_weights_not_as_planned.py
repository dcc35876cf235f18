"""Weights that an engine changes while it loads them.

Memory and speed are planned with the precision of the checkpoint. Widened to 32 bits the weights take twice the
planned memory; quantised or moved to host memory while loading, they take less and run at another speed than
predicted.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedService, ResolvedSpec
from disaggc.rules.given import GivenFlag, flags
from disaggc.rules.rule import Finding, SpecRule

_WIDE = ("float32", "float")


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """32-bit `dtype` (error); `quantization` of an unquantised checkpoint and `cpu-offload-gb` (warnings)."""
    for service in resolved.services:
        for given in flags(service):
            said = _said(service, given)
            if said is not None:
                severity, consequence = said
                yield Finding(
                    f"`{given.written}` {given.value} changes the weights of {service.model.id} at load; {consequence}",
                    given.path,
                    help="remove it, or serve a checkpoint in that precision",
                    severity=severity,
                )


def _said(service: ResolvedService, given: GivenFlag) -> tuple[Severity, str] | None:
    match given.flag, given.value:
        case "dtype", str(dtype) if dtype in _WIDE and service.model.dtype not in _WIDE:
            return Severity.ERROR, "they take twice the planned memory"
        case "quantization", str(method) if service.model.quantization == "none" and method not in (
            "",
            "none",
        ):
            return Severity.WARNING, f"memory and speed are planned for {service.model.dtype}"
        case "cpu-offload-gb", int(size) | float(size) if size > 0:
            return Severity.WARNING, "reading them from host memory is slower than predicted"
        case _:
            return None


RULE = SpecRule(
    "DGC329",
    "weights-not-as-planned",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/model.py:200, 264; vllm/config/offload.py:23",),
    fails=(
        """
        services: {chat: {engine: {settings: {dtype: float32}}}}
        #                                            ^ DGC329
        """,
        """
        services: {chat: {engine: {settings: {quantization: fp8}}}}
        #                                                   ^ DGC329 warning
        """,
        """
        services: {chat: {engine: {settings: {cpu-offload-gb: 10}}}}
        #                                                     ^ DGC329 warning
        """,
    ),
    passes=("services: {chat: {engine: {settings: {dtype: bfloat16}}}}",),
)
