"""What a generation request asks for, read and checked on arrival: body, model, length, prefix, whether to hand over.

Raises what refuses the request; admission and engines come after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from disaggc.proxy.board import Total
from disaggc.proxy.failures import RefusedError
from disaggc.proxy.precheck import check_length, check_model, likely_length
from disaggc.routing.prefix import BLOCK_BYTES, MAX_BLOCKS, block_keys
from disaggc.routing.roles import Path, path_for
from disaggc.routing.table import Policy

if TYPE_CHECKING:
    from disaggc.proxy.generation import Generation


def read_request(x: Generation) -> float | None:
    """Read the body; the prompt's tokens, exact or expected, None where only an engine can tell."""
    ask = x.ask = x.service.shapes.read(x.api, x.request.body)
    if ask.stripped:
        x.service.tally.cells[Total.PARAMS_STRIPPED] += 1
    if ask.stream and x.request.old:
        raise RefusedError(505, "streaming answers need HTTP/1.1")
    check_model(x.service, ask)
    return likely_length(x.service, ask)


async def exact_length(x: Generation) -> float:
    """The prompt's tokens as an engine counts them."""
    return await check_length(x, x.ask)


def worth_handing_over(x: Generation, cached_share: float) -> bool:
    """Whether what decode has not cached is above the break-even."""
    table = x.service.table
    uncached = x.prompt_tokens * (1 - min(1.0, cached_share))
    path = path_for(
        uncached_tokens=uncached, skip_below=table.skip_prefill_below, block_size=table.block_size
    )
    return path is Path.REMOTE


def read_prefix(x: Generation) -> None:
    """Prefix keys, where a policy or a break-even asks for them; otherwise hashing would be for nothing."""
    table = x.service.table
    affinity = table.policy is Policy.PREFIX_AFFINITY
    if affinity or (x.remote and table.skip_prefill_below > table.block_size):
        x.keys = block_keys(x.ask.prompt_head(BLOCK_BYTES * MAX_BLOCKS))
    if affinity:
        x.prefix = x.request.headers.get(b"x-session-id") or (x.keys[0] if x.keys else b"")
