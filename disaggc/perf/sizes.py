"""Sizes pinned on the command line because the engine's own defaults depend on GPU and version.

The user's setting where there is one, else the value stated here. Knows no memory left and no traffic.
"""

from __future__ import annotations

from collections.abc import Mapping

from disaggc.catalog.facts import Attention
from disaggc.ir.plan import Role
from disaggc.resolve.model import NodeGroupFacts, ResolvedService, part_of
from disaggc.spec.model import SettingValue

_GIB = 2.0**30


def batched_tokens(service: ResolvedService, group: NodeGroupFacts, role: Role) -> int:
    """`--max-num-batched-tokens`: the user's, else the engine's default by memory, twice that on prefill replicas."""
    given = _number(service.settings[part_of(role)], "max-num-batched-tokens")
    if given is not None:
        return given
    default, _ = _engine_defaults(group.accelerator.memory_bytes)
    return default * 2 if role is Role.PREFILL else default


def block_size(service: ResolvedService, group: NodeGroupFacts, role: Role) -> int:
    """`--block-size`: the user's, else what the likely attention backend takes (MLA 64, Blackwell MLA 128, else 16)."""
    given = _number(service.settings[part_of(role)], "block-size")
    if given is not None:
        return given
    if service.model.attention is Attention.MLA and group.accelerator.vendor == "nvidia":
        return 128 if group.accelerator.architecture.startswith("blackwell") else 64
    return 16


def _number(settings: Mapping[str, SettingValue], flag: str) -> int | None:
    value = settings.get(flag)
    return int(value) if isinstance(value, int | float | str) and str(value).isdigit() else None


def _engine_defaults(memory_bytes: float) -> tuple[int, int]:
    """(batched tokens, sequences) vLLM 0.33 takes by GPU memory; read in its argument resolution."""
    if memory_bytes >= 160 * _GIB:
        return 16384, 1024
    return (8192, 1024) if memory_bytes >= 70 * _GIB else (2048, 256)


def wanted_sequences(service: ResolvedService, group: NodeGroupFacts, role: Role) -> int:
    """`--max-num-seqs` before memory is looked at: the user's, else the engine's default; few on prefill replicas."""
    given = _number(service.settings[part_of(role)], "max-num-seqs")
    if given is not None:
        return given
    default = _engine_defaults(group.accelerator.memory_bytes)[1]
    return min(default, 256) if role is Role.PREFILL else default


def capture_size(service: ResolvedService, group: NodeGroupFacts, role: Role, *, seqs: int) -> int:
    """`--max-cudagraph-capture-size`: the user's, else twice the sequences times their tokens, 512 or 1024 at most."""
    given = _number(service.settings[part_of(role)], "max-cudagraph-capture-size")
    if given is not None:
        return given
    speculative = service.given.speculative
    tokens = 1 + (speculative.tokens if speculative else 0)
    largest = min(seqs * tokens * 2, _largest_graph(group.accelerator.architecture))
    step = 16 if largest >= 256 else 8  # the engine's own grid of captured sizes
    return largest // step * step if largest >= 8 else largest


def _largest_graph(architecture: str) -> int:
    return 1024 if architecture.startswith("blackwell") else 512
