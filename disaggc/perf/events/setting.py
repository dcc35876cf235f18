"""What stands in front of the engines in a run: the proxy's rules and the KV lease. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from disaggc.routing.limits import Admission
from disaggc.routing.table import Policy


@dataclass(frozen=True, slots=True)
class Front:
    """The proxy: how it chooses, what it lets in.

    admission None: everything goes to the engines at once, as behind a proxy without admission. queue_s: longest wait
    for admission. retries: further tries of a request that has no byte yet. skip_prefill_below: uncached prompt tokens
    under which decode prefills alone; prompts below block_size always do. lease_s: how long prefill keeps KV that
    decode has not begun to fetch; load_failure: what decode does when it is gone. layer_wise: prefill writes each layer
    as soon as it is computed, to a decode replica that has made room before.
    """

    policy: Policy = Policy.LEAST_WORK
    admission: Admission | None = None
    queue_s: float = 30.0
    retries: int = 2
    skip_prefill_below: int = 0
    block_size: int = 16
    lease_s: float = 30.0
    load_failure: Literal["fail", "recompute"] = "fail"
    layer_wise: bool = False
