"""The step-time table of one replica: exported from the performance model, read by the double.

All numbers are seconds of model time at the `likely` constants. Knows no clock and no queue.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from disaggc.ir.plan import Pool, Role
from disaggc.ir.wording import faults
from disaggc.perf.engine_model import StepTimes
from disaggc.perf.models import Models
from disaggc.perf.transfer import Endpoint, KvPath, kv_path
from disaggc.resolve.model import ResolvedService

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_GRID = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096)
_FAR = 1 << 20


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DecodeTimes(_Part):
    """One decode step: interpolated over the batch, plus what reading the context costs."""

    batches: Annotated[tuple[int, ...], Field(min_length=1)]
    """Sequences in the replica, growing."""
    fixed_s: tuple[Seconds, ...]
    """The step at each of them with no context."""
    token_s: Seconds
    """For each token of context of all sequences together."""
    window_tokens: Annotated[int, Field(ge=0)] = 0
    """Context that sliding layers keep of each sequence."""
    window_token_s: Seconds = 0.0
    """For each token inside the window."""

    @model_validator(mode="after")
    def _grows(self) -> DecodeTimes:
        if len(self.batches) != len(self.fixed_s):
            raise ValueError("`batches` and `fixed_s` differ in length")
        if any(b <= a for a, b in zip(self.batches, self.batches[1:], strict=False)) or self.batches[0] < 1:
            raise ValueError("`batches` must grow from at least 1")
        return self


class PrefillTimes(_Part):
    """Prompt work of one data-parallel rank."""

    fixed_s: Seconds
    """Each step that computes only prompts."""
    token_s: Seconds
    """Each prompt token."""
    square_s: Seconds
    """Each squared prompt token."""
    floor_s: Seconds = 0.0
    """No step is shorter: weights are read once."""
    mixed_s: Seconds = 0.0
    """What a prompt chunk adds to a decode step before its first token."""
    kappa: Annotated[float, Field(gt=0)] = 1.0
    """Factor on a decode step that computes prompts too."""


class KvTimes(_Part):
    """Moving one request's KV."""

    setup_s: Seconds
    """Fixed cost of one transfer."""
    bytes_per_s: Annotated[float, Field(gt=0)]
    """Bytes that arrive per second, counted once."""
    bytes_per_token: Seconds
    """KV of one prompt token."""


class Timing(_Part):
    """The file `--timing` names."""

    version: Literal[1] = 1
    """Format of this file."""
    decode: DecodeTimes
    prefill: PrefillTimes
    kv: KvTimes
    ranks: Annotated[int, Field(ge=1)] = 1
    """Data-parallel ranks that share the prompts."""
    pp: Annotated[int, Field(ge=1)] = 1
    """Pipeline stages that work on different chunks at once."""

    def decode_s(self, batch: int, context: int, windowed: int) -> float:
        """One decode step; context: tokens of all sequences; windowed: those of them inside the windows."""
        d = self.decode
        at = bisect_right(d.batches, batch)
        if at == 0 or len(d.batches) == 1:
            fixed = d.fixed_s[0]
        else:
            # beyond the grid the last segment goes on
            right = min(at, len(d.batches) - 1)
            share = (batch - d.batches[right - 1]) / (d.batches[right] - d.batches[right - 1])
            fixed = d.fixed_s[right - 1] + share * (d.fixed_s[right] - d.fixed_s[right - 1])
        return fixed + context * d.token_s + windowed * d.window_token_s

    def step_s(self, batch: int, context: int, windowed: int, *, prompt: int, squares: float) -> float:
        """One step of the scheduler: `batch` sequences decode while `prompt` tokens of prompts are computed."""
        p = self.prefill
        work = (prompt * p.token_s + squares * p.square_s) / self.ranks
        if not prompt:
            return self.decode_s(batch, context, windowed)
        if not batch:
            return max(p.fixed_s + work, p.floor_s) / self.pp
        return p.kappa * self.decode_s(batch, context, windowed) + p.mixed_s + work

    def transfer_s(self, tokens: int) -> float:
        """Time the link is busy with one request's KV, set-up left out."""
        return tokens * self.kv.bytes_per_token / self.kv.bytes_per_s


DEFAULT = Timing(
    decode=DecodeTimes(batches=(1, 64, 256), fixed_s=(0.008, 0.012, 0.02), token_s=4e-9),
    prefill=PrefillTimes(fixed_s=0.005, token_s=2e-5, square_s=1e-10),
    kv=KvTimes(setup_s=0.002, bytes_per_s=2e10, bytes_per_token=131072),
)
"""Without a table: an engine of round numbers, no prediction of any hardware."""


class TimingError(ValueError):
    """The text is not a timing table; the message says why."""


def read_timing(text: str | bytes) -> Timing:
    """The table in a JSON text; TimingError when it is not one."""
    try:
        return Timing.model_validate_json(text)
    except ValidationError as exc:
        raise TimingError("\n".join(faults(exc, "table"))) from None


def timing_of(models: Models, service: ResolvedService, pool: Pool, *, same_node: bool = False) -> Timing:
    """The table of one pool of a plan, from the constants its predictions were made with.

    same_node: KV arrives over the fast link inside a node instead of the network.
    """
    group = models.resolved.group(pool.group)
    times = models.engine(service, group, pool.shape).likely
    end = Endpoint(group, pool.shape)
    path = kv_path(service, models.resolved.fabric, end, decode=end, same_node=same_node)
    return Timing(
        decode=_decode(times),
        prefill=PrefillTimes(
            fixed_s=times.prefill_fixed_s,
            token_s=times.prefill_token_s,
            square_s=times.prefill_square_s,
            floor_s=times.weight_read_s,
            mixed_s=times.values.mixed_s,
            kappa=times.values.kappa if pool.role is Role.COLOCATED else 1.0,
        ),
        kv=_kv(path, times),
        ranks=times.work.ranks,
        pp=times.work.pp,
    )


def _decode(times: StepTimes) -> DecodeTimes:
    """The grid and slopes of a model that is linear in the context, read off it."""
    window = times.work.sliding_window
    token_s = (times.decode(1, 2 * _FAR) - times.decode(1, _FAR)) / _FAR
    inside = (times.decode(1, window) - times.decode(1, 0)) / window - token_s if window else 0.0
    return DecodeTimes(
        batches=_GRID,
        fixed_s=tuple(times.decode(batch, 0) for batch in _GRID),
        token_s=token_s,
        window_tokens=window,
        window_token_s=max(inside, 0.0),
    )


def _kv(path: KvPath, times: StepTimes) -> KvTimes:
    setup = path.latency_s + times.values.kv_setup_s
    return KvTimes(
        setup_s=setup,
        bytes_per_s=path.speed(times.values),
        bytes_per_token=path.bytes_per_token + path.sliding_bytes_per_token,
    )
