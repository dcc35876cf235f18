"""The values a plan is written in: literal texts, what a target looks up, flags, variables. Knows no placement."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Because = tuple[str, ...]
"""Dotted field paths of the spec."""


class Element(BaseModel):
    """A part of the plan: frozen, no unknown keys."""

    # Built on first use: a command that needs one shape must not pay for the whole plan.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Role(StrEnum):
    """What a pool does. A flexible pool's replicas are prefill or decode by routing alone."""

    PREFILL = "prefill"
    DECODE = "decode"
    COLOCATED = "colocated"
    FLEXIBLE = "flexible"


class Literally(Element):
    """A value written as it stands."""

    kind: Literal["literal"] = "literal"
    value: str
    """The text."""


class FromSecret(Element):
    """A value that the target fetches from its secret store; never written by disaggc."""

    kind: Literal["secret"] = "secret"
    name: str
    """Name of the secret."""


class OwnAddress(Element):
    """The routable address of the node the process runs on: the pod's IP on Kubernetes, else the node's address."""

    kind: Literal["own-address"] = "own-address"


class LeaderAddress(Element):
    """The routable address of the replica's first node (multi-node replicas)."""

    kind: Literal["leader-address"] = "leader-address"


class NodeRank(Element):
    """The rank of the node within its replica, times `times`, plus `plus` (multi-node replicas)."""

    kind: Literal["node-rank"] = "node-rank"
    times: int = 1
    """Factor."""
    plus: int = 0
    """Offset."""


Value = Annotated[Literally | FromSecret | OwnAddress | LeaderAddress | NodeRank, Field(discriminator="kind")]


class EnvVar(Element):
    """One environment variable of a process."""

    name: str
    """Variable name."""
    value: Value
    """Its value or where it comes from."""
    because: Because = ()
    """Fields of the spec that caused it; empty for what the compiler adds."""


class Argument(Element):
    """One command-line flag; `value` None is a flag without a value."""

    flag: str
    """With its dashes, e.g. `--block-size`."""
    value: Value | None = None
    """Its value."""
    more: tuple[Value, ...] = ()
    """Further values of a list flag, after `value`."""
    because: Because = ()
    """Fields of the spec that caused it."""
    first_node_only: bool = False
    """Only on the first node of a multi-node replica."""
    other_nodes_only: bool = False
    """Only on the later nodes of a multi-node replica (e.g. `--headless`)."""
