"""What the proxy makes of inputs drawn at random: `python -m tests.testbed.outcomes SEED ROUNDS`, one line for each.

Two packages that do the same print the same. Inputs are pieces of HTTP, events and JSON put together so that they are
nearly right: what a fuzzer of raw bytes would seldom reach.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from msgspec import Raw

from disaggc.proxy import asks, dialects, events, eventstream, framing, members, offers, requests, verdicts
from disaggc.proxy.answers import Answer
from disaggc.proxy.framing import Head
from disaggc.proxy.upstream import Connection
from disaggc.routing.table import Dialect
from tests.fuzz import damage
from tests.proxy.harness import Stack, prompt, read_reply, request, run
from tests.proxy.spoken import CHUNKED, CLOSE, DONE, Spoken, token

STREAM = [
    b"data: ", b"data:", b"data: {", b"data: [DONE]\n\n", b"\n\n", b"\n", b"\r\n", b"\r", b"\r\r", b": ping\n\n", b"event: a\n",
    b"id: 1\n", b"\xef\xbb\xbf", b"0\r\n\r\n", b"2\r\n", b"5\r\n", b"a;x=y\r\n", b"ffffffff\r\n", b"fffffffff\r\n", b"\xff", b"\x00",
    b'{"choices":[{"index":0,"text":"a","finish_reason":null}]}', b'"usage":{', b"[DONE]",
]  # fmt: skip
VALUES = [
    b"null", b"true", b"false", b'"true"', b"0", b"1", b"-1", b'"1"', b"1.0", b"1.5", b"1e999", b"9" * 26, b'""', b'"x"', b'"m"',
    b"[]", b"{}", b"[[]]", b"[1,2,3]", b"[[1,2],[3]]", b'["a","b"]', b"[{}]", b'{"include_usage":true}', b"[" * 2000, b'{"a":' * 2000,
    b'{"kv_transfer_params":{},"a":1}', b'[{"role":"user","content":"x"}]', b'[{"finish_reason":"abort"}]', b'[{"finish_reason":[]}]',
    b'[{"role":"user","content":[{"type":"image_url","image_url":"x"}]}]', b'{"message":"x"}', b'"failed"', b'"message_stop"',
    b'{"prompt_tokens":5,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":3}}', b'{"input_tokens":5,"output_tokens":-1}',
    b'{"remote_block_ids":[[1,2]],"remote_engine_id":"e","remote_host":"h","remote_port":1,"do_remote_prefill":true}',
]  # fmt: skip
NAMES = [
    "model", "prompt", "messages", "input", "system", "stream", "stream_options", "n", "best_of", "max_tokens", "max_output_tokens",
    "max_completion_tokens", "echo", "use_beam_search", "prompt_logprobs", "truncate_prompt_tokens", "background", "usage", "error",
    "previous_response_id", "kv_transfer_params", "vllm_xargs", "request_id", "choices", "type", "status", "stop_reason", "delta",
    "response", "prompt_token_ids", "remote_prefill_cached_tokens", "remote_block_ids", "do_remote_prefill", "k",
]  # fmt: skip
STATUS = [b"HTTP/1.1 200 OK", b"HTTP/1.0 200", b"HTTP/1.1 204 x", b"HTTP/1.1 100 go", b"HTTP/2 200 OK"]
FIELDS = [
    b"content-length: 5", b"content-length: 18446744073709551616", b"content-length: -1", b"transfer-encoding: chunked",
    b"transfer-encoding: gzip", b"connection: close", b"connection: Keep-Alive, x", b"content-type: text/event-stream; a",
    b"content-type: application/json", b"content-encoding: gzip", b"content-encoding: identity", b"a b: c", b": x", b" fold", b"x",
]  # fmt: skip
SHOWN: dict[str, tuple[str, ...]] = {
    "LegError": ("reason", "status", "blame", "fresh", "sent"),
    "RefusedError": ("status", "message", "kind", "retry_after"),
    "Usage": ("prompt", "completion", "cached"),
    "Handed": ("params", "prompt_tokens", "cached_tokens"),
    "Head": ("status", "content_type", "keep_alive", "chunked", "length", "event_stream"),
    "Ask": (
        "found", "stream", "model", "prompt_bytes", "prompt_tokens", "countable", "output_limit", "single", "stateful",
        "hide_usage", "stripped",
    ),
}  # fmt: skip


class Dice(random.Random):
    """Draws inputs."""

    def soup(self, pieces: list[bytes] = STREAM, most: int = 12) -> bytes:
        return b"".join(self.choices(pieces, k=self.randrange(most)))

    def damaged(self, raw: bytes) -> bytes:
        return damage.damaged(self, raw, STREAM, most=3)

    def members(self) -> bytes:
        said = (
            b'"%b":%b' % (self.choice(NAMES).encode(), self.choice(VALUES)) for _ in range(self.randrange(7))
        )
        raw = b"{" + b",".join(said) + b"}"
        return self.damaged(raw) if self.random() < 0.2 else raw

    def events(self) -> bytes:
        found = b""
        for _ in range(self.randrange(6)):
            kinds = (
                b"data: " + self.members() + b"\n\n",
                b"data: [DONE]\n\n",
                b": ping\n\n",
                self.soup(most=4),
            )
            one = self.choice(kinds)
            found += framing.chunk(one) if self.random() < 0.8 else one
        found += self.choice((b"", b"0\r\n\r\n", b"0\r\nx: y\r\n\r\nmore"))
        return self.damaged(found) if self.random() < 0.3 else found

    def answer(self) -> bytes:
        """Of an engine, head and all."""
        if self.random() < 0.3:
            body = self.members()
            return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        body = b"".join(
            framing.chunk(token("t") if self.random() < 0.6 else b"data: %b\n\n" % self.members())
            for _ in range(self.randrange(1, 6))
        )
        if self.random() < 0.7:
            body += framing.chunk(token("t", "length")) + framing.chunk(DONE) + framing.LAST_CHUNK
        return CHUNKED + (self.damaged(body) if self.random() < 0.4 else body)

    def pieces(self, raw: bytes) -> list[bytes]:
        cuts = sorted(self.randrange(len(raw) + 1) for _ in range(self.randrange(6)))
        return [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]


def shown(value: Any) -> str:
    """A value, its type and all that is in it; long ones by their digest."""
    kind = type(value).__name__
    if isinstance(value, (bytes, bytearray, memoryview, Raw)):
        raw = bytes(value)
        return f"{kind}:{raw if len(raw) < 200 else hashlib.sha256(raw).hexdigest()}"
    if isinstance(value, (list, tuple)):
        return f"{kind}[{', '.join(map(shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{shown(k)}: {shown(v)}' for k, v in value.items())}}}"
    if kind in SHOWN:
        return f"{kind}({', '.join(f'{name}={shown(getattr(value, name))}' for name in SHOWN[kind])})"
    return f"{kind}:{value!r}"


def outcome(call: Callable[..., Any], *given: Any) -> str:
    try:
        return shown(call(*given))
    except Exception as exc:  # noqa: BLE001 - which one it is is the outcome
        return f"raised {shown(exc)} {exc}"


def borders(cutter: Any, pieces: list[bytes]) -> list[Any]:
    found: list[Any] = []
    for piece in pieces:
        found += (cutter.feed(piece), cutter.ended, cutter.surplus)
        if cutter.ended:
            return found
    return [*found, cutter.finish()] if isinstance(cutter, eventstream.EventBorders) else found


def bodies(api: asks.Api, raw: bytes) -> list[Any]:
    ask = asks.Ask(api, raw)
    params = Raw(b'{"a":1}')
    ways = (
        lambda: ask.decode_body(None), lambda: ask.decode_body(params), ask.tokenize_body, lambda: ask.prompt_head(8),
        lambda: ask.prefill_body(params, keeps_only_capped=True), lambda: ask.prefill_body(params, keeps_only_capped=False),
        lambda: ask.hands_over_tokens, lambda: ask.tokenizable,
    )  # fmt: skip
    return [ask, *map(outcome, ways)]


READERS = (
    framing.dechunk, framing.chunks, framing.chunk_length, eventstream.split_events, eventstream.value_of, events.scrub,
    events.object_of, events.events_of, events.is_complete, events.usage_apart, events.notable_in, events.usage_of,
    verdicts.has_begun, members.members_of, requests.check_coding,
)  # fmt: skip


def judged(head: Head, body: bytes, *, framed: bool, ended: bool) -> Any:
    return verdicts.fault_of(Answer(head, body, Connection(None), framed=framed, ended=ended))  # type: ignore[arg-type]


def calls(dice: Dice) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """One round: what is called, and with what."""
    head = b"\r\n".join([dice.choice(STATUS), *dice.choices(FIELDS, k=dice.randrange(5))])
    yield "parse_head", framing.parse_head, (head,)
    yield "parse_head", framing.parse_head, (dice.damaged(head),)
    raw, said = dice.events(), dice.members()
    pieces = dice.pieces(raw)
    yield "chunks", lambda given: borders(framing.ChunkBorders(), given), (pieces,)
    yield "events", lambda given: borders(eventstream.EventBorders(), given), (pieces,)
    length = dice.choice((None, len(raw), len(raw) // 2, 0))
    yield "unchunked", lambda n, given: borders(eventstream.UnchunkedBorders(n), given), (length, pieces)
    for number, reader in enumerate(READERS):
        for given in (raw, said, dice.soup(most=3)):
            yield f"reader {number}", reader, (given,)
    yield "cached_tokens_as", events.cached_tokens_as, (said, dice.choice((None, 5)))
    decoded = events.object_of(b"data: " + said + b"\n\n") or {}
    for number, judge in enumerate((events.is_failure, events.is_last, events.is_only_usage)):
        yield f"judge {number}", judge, (decoded,)
    for status in (200, 204, 302, 400, 429, 500):
        answer = Head(
            status, b"", keep_alive=True, chunked=False, length=None, event_stream=dice.random() < 0.3
        )
        how = {"framed": dice.random() < 0.5, "ended": dice.random() < 0.7}
        yield f"fault_of {how}", partial(judged, **how), (answer, dice.choice((raw, said)))
    for dialect in (Dialect.NIXL, Dialect.MORIIO_READ):
        yield "handed_over", verdicts.handed_over, (said, dialect)
        yield "handed_over", verdicts.handed_over, (b'{"kv_transfer_params":%b}' % dice.members(), dialect)
        yield "params_fault", dialects.params_fault, (decoded, dialect)
    api = dice.choice(list(asks.APIS.values()))
    yield f"bodies {api.path!r}", partial(bodies, api), (said,)
    target = dice.choice((b"http://h", b"/", b"HTTPS://H:1/a?b#c", b"x")) + dice.soup(most=3)
    yield "path_and_query", requests.path_and_query, (target,)
    yield "forwarded", requests.forwarded, ({b"b3": dice.soup(most=3), b"z": b"y"},)
    fields = {b"connection": dice.choice((b"upgrade, x", b"Upgrade", dice.soup(most=2))), b"upgrade": b"h2c"}
    offered = dice.choice((b"GET", b"CONNECT")), dice.soup(most=2), "1.1"
    yield f"without_offer {fields}", partial(offers.without_offer, headers=fields), offered


async def served(dice: Dice, rounds: int) -> list[str]:
    """What a client gets through the whole proxy: for its own damaged requests, and of an engine's damaged answers."""
    found: list[str] = []
    engine = Spoken("d0", pause_s=0.0)
    async with Stack(prefills=[], decodes=[engine], table={"dialect": "none", "retries": 0}).up() as stack:
        for _ in range(rounds):
            raw = request(
                dice.members(), dice.choice(("/v1/completions", "/v1/messages", "/v1/responses", "/score"))
            )
            found.append(await received(stack, dice.damaged(raw) if dice.random() < 0.5 else raw))
            engine.answers.append(
                [dice.answer(), CLOSE]
            )  # in one piece: what is read at once must not be chance
            found.append(await received(stack, request(prompt(stream=dice.random() < 0.7))))
            engine.answers.clear()
            stack.worker._service.fleet.servers[
                0
            ].circuit.succeeded()  # the next one is not to be refused for this one
    return found


async def received(stack: Stack, raw: bytes) -> str:
    reader, writer = await stack.connect()
    try:
        writer.write(raw)
        reply = await asyncio.wait_for(read_reply(reader), 2.0)
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError) as exc:
        return f"{raw!r} -> {type(exc).__name__}"
    finally:
        writer.close()
    headers = {name: value for name, value in reply.headers.items() if name != "x-request-id"}
    body = re.sub(rb"[0-9a-f]{32}", b"ID", reply.body)
    return f"{raw!r} -> {shown([reply.status, headers, body, reply.complete])}"


def main(seed: int, rounds: int) -> int:
    dice = Dice(seed)
    sys.stdout.write(json.dumps(framing.__file__) + "\n")
    for _ in range(rounds):
        for name, call, given in calls(dice):
            sys.stdout.write(f"{name} {shown(given)} -> {outcome(call, *given)}\n")
    for line in run(served(dice, rounds // 2), None):
        sys.stdout.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
