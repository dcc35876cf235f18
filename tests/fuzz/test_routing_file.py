"""Fuzz of the routing file: any damage is a named error, or a table that a worker serves by."""

import asyncio
import json
import os
import random
import time

from disaggc.routing.table import load_table
from disaggc.routing.text import TableError
from tests.proxy.engine import Engine
from tests.proxy.harness import Stack, prompt, run

SECONDS = float(os.environ.get("DISAGGC_FUZZ_SECONDS", "30")) / 2
VALUES = [
    None,
    True,
    0,
    -1,
    1,
    3,
    1e9,
    "",
    "x",
    "a/b",
    "127.0.0.1",
    "::1",
    [],
    {},
    [1, 1],
    "draining",
    "flexible",
    "prefill",
    "none",
    "mooncake",
    0.5,
]


def paths(value, at=()):
    yield at
    for key, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from paths(inner, (*at, key))


def change(rng, table):
    table = json.loads(json.dumps(table))
    for _ in range(rng.randrange(1, 4)):
        *way, last = rng.choice([p for p in paths(table) if p])
        try:
            inside = table
            for key in way:
                inside = inside[key]
            match rng.randrange(3):
                case 0:
                    inside[last] = rng.choice(VALUES)
                case 1:
                    del inside[last]
                case _ if isinstance(inside, dict):
                    inside[
                        rng.choice(["surprise", "split", "policy", "state", "weight", "kv", "retries"])
                    ] = rng.choice(VALUES)
        except (KeyError, IndexError, TypeError):
            continue
    return table


def test_no_table_breaks_a_worker():
    async def go():
        rng = random.Random(7)  # noqa: S311 - repeatable noise
        stack = Stack(prefills=[Engine("p0"), Engine("p1")], decodes=[Engine("d0"), Engine("d1")])
        async with stack.up() as s:
            generation, taken = 1, 0
            good = s.routing()
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                table = change(rng, good)
                try:
                    load_table(json.dumps(table))
                except TableError:
                    continue
                generation += 1
                table["generation"] = generation
                answer = await s.order(table)
                assert answer["generation"] == generation
                taken += 1
                if taken % 5 == 0:
                    reply = await s.ask(prompt())
                    assert reply.status in {200, 400, 401, 404, 429, 502, 503, 504}, reply
            assert taken > 10
            await s.order(s.routing(generation + 1))
            await asyncio.sleep(0.5)
            assert (await s.ask(prompt())).status == 200

    run(go(), None)
