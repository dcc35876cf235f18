"""Several proxies of one service: each lets in its share of what the service may hold, as it sees only its own part."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from disaggc.proxy.board import Total
from tests.proxy.engine import Engine
from tests.proxy.harness import FAST, Stack, prompt, run


@pytest.mark.parametrize("limited", ["max_requests", "max_seqs"])
@pytest.mark.parametrize(("proxies", "served"), [(1, 4), (2, 2), (4, 1)])
def test_requests_in_flight_and_the_queue_are_shared(limited, proxies, served):
    async def go():
        decode = Engine("d0", step_s=0.3, tokens=4)
        admission = {"queue": 4, **({"max_requests": 4} if limited == "max_requests" else {})}
        table = {"admission": admission, "proxies": proxies, "timeouts": {**FAST, "queue_s": 5.0}}
        async with Stack(decodes=[decode], table=table).up() as s:
            if limited == "max_seqs":
                engines = s.routing(2)
                engines["pools"][1]["replicas"][0]["max_seqs"] = 4
                assert await s.order(engines) == {"generation": 2}
            asked = [asyncio.ensure_future(s.ask(prompt())) for _ in range(12)]
            await asyncio.sleep(0.3)
            assert len(decode.seen) == served
            assert s.total(Total.QUEUE) == 4 // proxies
            statuses = Counter([reply.status for reply in await asyncio.gather(*asked)])
            assert statuses == {200: served + 4 // proxies, 429: 12 - served - 4 // proxies}

    run(go())
