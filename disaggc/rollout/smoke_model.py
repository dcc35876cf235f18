"""What a smoke test is about and what it finds. Sends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from disaggc.ir.plan import Pool, Role, ServicePlan

State = Literal["pass", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of one subject. sentence: what was seen, in one sentence. figures: the numbers in it, by name."""

    check: str
    subject: str
    state: State
    sentence: str
    figures: Mapping[str, float] = field(default_factory=dict)


def judged(
    check: str, subject: str, sentence: str, *, ok: bool, figures: Mapping[str, float] | None = None
) -> Finding:
    """A finding that passes or fails."""
    return Finding(check, subject, "pass" if ok else "fail", sentence, figures or {})


def skipped(
    check: str, subject: str, sentence: str, *, figures: Mapping[str, float] | None = None
) -> Finding:
    """A finding that could not be judged; the sentence says why."""
    return Finding(check, subject, "skip", sentence, figures or {})


def failed(finding: Finding) -> bool:
    """Whether it is what makes the whole test fail."""
    return finding.state == "fail"


@dataclass(frozen=True, slots=True)
class ClientKey:
    """What clients present to the proxy. value: None where it is not known; source: where it is looked for."""

    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Target:
    """One engine of the plan at its address. roles: what the plan or the routing table lets it do."""

    address: str
    url: str
    pool: Pool
    roles: frozenset[Role]


Pair = tuple[Target, Target]
"""A prefill engine and a decode engine."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One running service with the plan it should match. proxy: base URL, None where there is none to ask."""

    plan: ServicePlan
    engines: tuple[Target, ...]
    proxy: str | None
    key: ClientKey
    timeout_s: float

    @property
    def block_size(self) -> int:
        """Tokens of one KV block, the larger of the roles'."""
        sizes = [
            int(argument.value.value)
            for pool in self.plan.pools
            for argument in pool.replicas[0].arguments
            if argument.flag == "--block-size"
            and argument.value is not None
            and argument.value.kind == "literal"
        ]
        return max(sizes, default=16)

    @property
    def prompt_tokens(self) -> int:
        """Length of a test prompt: several whole blocks and a part of one, above the break-even, within the context."""
        most = max(1, self.plan.model.max_model_len - 64)
        return min(most, max(4 * self.block_size + 5, 512, self.plan.skip_prefill_below + self.block_size))

    def that(self, role: Role) -> tuple[Target, ...]:
        """The engines that may do this."""
        return tuple(engine for engine in self.engines if role in engine.roles)

    @property
    def generating(self) -> tuple[Target, ...]:
        """The engines that answer clients, whoever prefilled."""
        return tuple(engine for engine in self.engines if engine.roles & {Role.DECODE, Role.COLOCATED})

    def pairs(self) -> tuple[Pair, ...]:
        """Every prefill engine with every decode engine that the plan links, in rounds that use no engine twice."""
        links = {(link.prefill, link.decode) for link in self.plan.links}
        first, second = self.that(Role.PREFILL), self.that(Role.DECODE)
        found = []
        for shift in range(len(second)):
            for position, prefill in enumerate(first):
                decode = second[(position + shift) % len(second)]
                if prefill is not decode and (prefill.pool.address, decode.pool.address) in links:
                    found.append((prefill, decode))
        return tuple(found)
