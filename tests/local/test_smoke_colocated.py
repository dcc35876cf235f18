"""`disaggc smoke` on a service without prefill and decode apart: what its clients see is judged all the same."""

from __future__ import annotations

from disaggc.ir.plan import Role, ServicePlan
from disaggc.rollout.smoke import smoke
from disaggc.rollout.smoke_model import ClientKey, Finding, Subject, Target
from tests.emit.plans import colocated
from tests.simengine.doubles import Double, run, up


def plan() -> ServicePlan:
    service = colocated().services[0]
    model = service.model.model_copy(update={"served_name": "m", "max_model_len": 2048})
    return service.model_copy(update={"model": model})


async def found(url: str, double: Double) -> dict[str, Finding]:
    """Findings by check; the double is its own proxy."""
    service = plan()
    (pool,) = service.pools
    engine = Target(pool.replicas[0].address, url, pool, frozenset({Role.COLOCATED}))
    there = f"http://127.0.0.1:{double.engine.port}"
    subject = Subject(service, (engine,), there, ClientKey(None, "nothing"), timeout_s=10)
    return {one.check: one async for one in smoke(subject, lambda _: None)}


def test_clients_that_hang_up_are_tried_on_engines_that_do_both():
    async def go():
        async with up(double := Double()):
            seen = await found(f"http://127.0.0.1:{double.engine.port}", double)
            assert seen["hang-up"].state == "pass", seen["hang-up"]
            assert "nothing is left on 1 engine after 4 clients hung up" in seen["hang-up"].sentence
            assert not {"kv-moves", "remote-prefill"} & set(seen)

    run(go())


def test_without_an_engine_to_ask_the_sentence_says_which_are_missing():
    async def go():
        async with up(double := Double()):
            seen = await found("http://127.0.0.1:1", double)
            assert seen["hang-up"].state == "skip"
            assert (
                seen["hang-up"].sentence
                == "it was not asked: every engine that could answer failed `reachable`"
            )

    run(go())
