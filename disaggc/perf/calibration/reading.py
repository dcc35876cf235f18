"""One benchmark run in base units, whatever tool wrote it, and what is wrong with it. Knows no format and no fit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

RunKind = Literal["decode", "prefill", "mixed", "pd", "colocated"]
"""decode: long outputs, token times; prefill: outputs of one token; mixed: prompts beside decode steps; pd: a layout of
prefill and decode replicas; colocated: anything else on engines that do both."""
UNKNOWN = math.nan


@dataclass(frozen=True, slots=True)
class Setting:
    """What was benchmarked: where a run does not say, the command line does."""

    model: str | None = None
    accelerator: str | None = None
    shape: str | None = None
    replicas: int | None = None
    kind: RunKind | None = None
    kv_tokens: int | None = None
    """KV tokens of one engine: `num_gpu_blocks` x `block_size` of its log."""
    kv_dtype: str | None = None
    """`--kv-cache-dtype` of its engines; the checkpoint's own where nobody says."""
    longest: int | None = None
    """Context limit of the spec whose schedule the run is of."""
    roles: str | None = None
    """What its engines do in that spec's plan: `prefill,decode`."""

    def over(self, other: Setting) -> Setting:
        """This with the gaps filled from another."""
        return Setting(
            model=self.model or other.model,
            accelerator=self.accelerator or other.accelerator,
            shape=self.shape or other.shape,
            replicas=self.replicas or other.replicas,
            kind=self.kind or other.kind,
            kv_tokens=self.kv_tokens or other.kv_tokens,
            kv_dtype=self.kv_dtype or other.kv_dtype,
            longest=self.longest or other.longest,
            roles=self.roles or other.roles,
        )


@dataclass(frozen=True, slots=True)
class Requests:
    """What a run saved of each request, seconds and tokens, in the order they were sent."""

    starts: tuple[float, ...]
    ttfts: tuple[float, ...]
    token_times: tuple[float, ...]
    """Mean time between tokens after the first; NaN for one token."""
    prompts: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One run. name: the file, with the run inside it. Missing figures are NaN, seconds everywhere.

    isl, osl: mean tokens seen, not asked for. rate: infinity where all are sent at once.
    """

    name: str
    tool: str
    setting: Setting
    isl: float
    osl: float
    concurrency: float
    rate: float
    sent: int
    completed: int
    failed: int
    duration_s: float
    ttft_s: float = UNKNOWN
    tpot_s: float = UNKNOWN
    itl_s: float = UNKNOWN
    itl_p99_s: float = UNKNOWN
    e2e_s: float = UNKNOWN
    acceptance: float = UNKNOWN
    """Share of drafts accepted where the run speculated."""
    requests: Requests | None = field(default=None, repr=False)

    @property
    def end_to_end_s(self) -> float:
        """Measured, or the first token and the tokens after it; these alone where no first token is known."""
        if math.isfinite(self.e2e_s):
            return self.e2e_s
        first = self.ttft_s if math.isfinite(self.ttft_s) else 0.0
        return first + max(0.0, self.osl - 1) * self.tpot_s

    @property
    def decoding_s(self) -> float:
        """Seconds of a request after its first token: what is left of the whole, or its tokens' own times."""
        beyond = self.end_to_end_s - self.ttft_s
        if math.isfinite(beyond):
            return max(0.0, beyond)
        each = self.tpot_s if math.isfinite(self.tpot_s) else self.itl_s
        return max(0.0, self.osl - 1) * each

    @property
    def running(self) -> float:
        """Mean sequences that decode at one time in the whole layout, by Little's law; NaN where that is unknown."""
        whole, decoding = self.end_to_end_s, self.decoding_s
        if math.isfinite(self.concurrency) and whole > 0:
            return self.concurrency * min(1.0, decoding / whole) if math.isfinite(decoding) else UNKNOWN
        return self.completed / self.duration_s * decoding if self.duration_s > 0 else UNKNOWN

    @property
    def batch(self) -> float:
        """Sequences that run in one replica."""
        return self.running / (self.setting.replicas or 1)

    @property
    def step_s(self) -> float:
        """Seconds of one decode step without prompts in it, where the run tells them apart."""
        alone = self.setting.kind == "pd"
        return self.tpot_s if alone or not math.isfinite(self.itl_s) else self.itl_s


@dataclass(frozen=True, slots=True)
class Dropped:
    """Something left aside: a whole run, or one of its figures."""

    name: str
    what: str
    why: str

    def __str__(self) -> str:
        """`run.json: first tokens dropped, 12 of 100 requests failed`."""
        return f"{self.name}: {self.what}, {self.why}"
