import asyncio
import logging

from disaggc.proxy.outbox import Outbox
from tests.proxy.harness import FAST, Stack, prompt, read_reply, request, run


class Wire(asyncio.WriteTransport):
    def __init__(self) -> None:
        super().__init__()
        self.got: list[bytes] = []
        self.closed = False

    def write(self, data):
        self.got.append(bytes(data))

    def is_closing(self):
        return self.closed


def test_what_is_sent_goes_out_in_order_at_the_end_of_the_turn():
    async def go():
        box, one, two = Outbox(), Wire(), Wire()
        box.few = False
        for data in (b"a", b"b"):
            box.send(one, data)
            box.send(two, data)
        assert (one.got, two.got) == ([], [])
        await asyncio.sleep(0)
        assert (one.got, two.got) == ([b"a", b"b"], [b"a", b"b"])
        box.send(one, b"c")
        two.closed = True
        box.send(two, b"c")
        box.few = True
        box.send(one, b"d")
        assert one.got[-1] == b"b", "it must not overtake what came before"
        box.flush()
        assert (one.got, two.got) == ([b"a", b"b", b"c", b"d"], [b"a", b"b"])
        box.send(one, b"e")
        assert one.got[-1] == b"e"

    run(go())


def test_an_answer_is_whole_where_the_connection_closes_after_it():
    async def go():
        async with Stack().up() as s:
            for _ in range(20):
                reader, writer = await s.connect()
                writer.write(request(prompt(), connection="close"))
                reply = await read_reply(reader)
                assert reply.json["choices"]
                assert await reader.read() == b""
                writer.close()

    run(go())


def test_an_engine_that_takes_a_large_prompt_slowly_is_nothing_to_log(caplog):
    """Its connection is told to pause and to go on: every protocol of asyncio is."""

    async def go():
        async with Stack(
            table={"max_model_len": 1 << 24, "timeouts": {**FAST, "prefill_s": 5, "first_byte_s": 5}}
        ).up() as s:
            reply = await s.ask(prompt(prompt="a b " * (2 << 20)))
            assert reply.status == 200

    run(go())
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
