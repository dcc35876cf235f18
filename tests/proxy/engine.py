"""A scripted vLLM for tests: raw asyncio, NIXL pull with pinned blocks, faults on demand. Small on purpose.

Run inside the test's loop. Every request is kept in `seen`; `script` holds faults for the next requests.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from tests.ports import free_port

_BLOCKS = itertools.count(1)
_PINNED: dict[int, Engine] = {}
GENERATION = {
    "/v1/chat/completions", "/v1/chat/completions/batch", "/v1/completions", "/v1/responses", "/v1/messages",
}  # fmt: skip
_flag, _whole = TypeAdapter(bool | None).validate_python, TypeAdapter(int | None).validate_python
_options = TypeAdapter(dict[str, bool | None] | None).validate_python


def _lax(body: dict[str, Any]) -> dict[str, Any]:
    """The body as vLLM reads it; ValueError."""
    return {
        **body,
        "stream": _flag(body.get("stream")),
        "max_tokens": _whole(body.get("max_tokens")),
        "stream_options": _options(body.get("stream_options")),
    }


@dataclass(eq=False)
class Engine:
    """One engine. `tokens` is how many it generates, `step_s` the time for each."""

    name: str
    tokens: int = 4
    step_s: float = 0.0
    prefill_s: float = 0.0
    health_s: float = 0.0
    models: tuple[str, ...] = ("m",)
    script: deque[Any] = field(default_factory=deque)
    seen: list[dict[str, Any]] = field(default_factory=list)
    pinned: set[int] = field(default_factory=set)
    aborted: int = 0
    pulled: int = 0
    running: int = 0
    extra: bytes = b""
    port: int = 0
    tls: Any = None
    small: dict[str, Any] | None = None
    """What calls other than generation are answered."""

    async def start(self) -> Engine:
        self.port = self.port or free_port()
        self._server = await asyncio.start_server(
            self._client, "127.0.0.1", self.port, limit=64 << 20, ssl=self.tls
        )
        self._tasks: set[asyncio.Task] = set()
        return self

    async def stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _client(self, reader, writer) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _request(self, reader, writer) -> bool:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return False
        line, *rest = head.split("\r\n")
        method, path, _ = line.split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (r.partition(":") for r in rest) if k}
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        try:
            body = json.loads(raw) if raw else {}
            lax = _lax(body)
        except (ValueError, AttributeError, TypeError):
            return self._json(writer, 400, {"error": {"message": "not valid", "code": 400}})
        entry = {"method": method, "path": path, "headers": headers, "body": body, "raw": raw}
        if path not in ("/health", "/metrics"):
            self.seen.append(entry)
        self.running += 1
        watch = asyncio.ensure_future(reader.read(1))
        work = asyncio.ensure_future(self._answer(path, lax, writer))
        try:
            await asyncio.wait({watch, work}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and watch.done():
                self.aborted += 1
                work.cancel()
                with suppress(asyncio.CancelledError):
                    await work
                return False
            try:
                keep = await work
            except ConnectionError:
                self.aborted += 1
                return False
        finally:
            self.running -= 1
            for task in (watch, work):
                task.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await watch
        return (keep and not watch.done()) or (keep and watch.cancelled())

    # --- answers ---

    async def _answer(self, path: str, body: dict, writer) -> bool:  # noqa: PLR0911 - one line a path
        if path == "/health":
            await asyncio.sleep(self.health_s)
            return self._whole(writer, 200, b"")
        if path == "/metrics":
            text = f"vllm:num_requests_waiting 0.0\nvllm:external_prefix_cache_hits_total {self.pulled}.0\n"
            return self._whole(writer, 200, text.encode(), kind="text/plain")
        path = path.partition("?")[0]
        if path == "/v1/models":
            return self._json(writer, 200, {"object": "list", "data": [{"id": m} for m in self.models]})
        if path == "/tokenize":
            return self._json(
                writer, 200, {"count": len(json.dumps(body.get("prompt") or body.get("messages"))) // 4}
            )
        if path not in GENERATION:
            small = self.small or {"engine": self.name, "path": path}
            return self._json(writer, small.get("status", 200), small)
        release = body.get("model") == "disaggc-release"
        fault = self.script.popleft() if self.script and not release else None
        params = body.get("kv_transfer_params") or {}
        if fault is not None and (result := await self._fault(fault, writer)) is not None:
            return result
        if body.get("model") not in (None, *self.models):
            self._pull(params)
            return self._json(writer, 404, {"error": {"message": "unknown model", "code": 404}})
        if params.get("do_remote_decode"):
            return await self._prefill(body, writer, fault)
        self._pull(params)
        return await self._decode(body, writer, fault)

    async def _fault(self, fault: Any, writer) -> bool | None:  # noqa: PLR0911 - one line a fault
        match fault:
            case int():
                return self._json(writer, fault, {"error": {"message": "scripted", "code": fault}})
            case "reset":
                writer.transport.abort()
                return False
            case "hang":
                await asyncio.sleep(3600)
            case "error-200":
                return self._json(writer, 200, {"error": {"message": "scripted", "code": 500}})
            case "abort-200":
                return self._json(
                    writer, 200, {"choices": [{"index": 0, "text": "", "finish_reason": "abort"}]}
                )
            case "empty-200":
                return self._json(writer, 200, {"choices": []})
            case "garbage":
                writer.write(b"SPDY/9 hello\r\n\r\n")
                await writer.drain()
                return False
        return None

    def _pull(self, params: dict) -> None:
        for block in itertools.chain.from_iterable(params.get("remote_block_ids") or []):
            owner = _PINNED.pop(block, None)
            if owner is not None:
                owner.pinned.discard(block)
                self.pulled += 1

    async def _prefill(self, body: dict, writer, fault: Any) -> bool:
        if self.prefill_s:
            await asyncio.sleep(self.prefill_s)
        answer: dict[str, Any] = {
            "id": "p", "choices": [{"index": 0, "text": "x", "finish_reason": "length"}],
            "usage": {
                "prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101,
                "prompt_tokens_details": {"cached_tokens": 16},
            },
        }  # fmt: skip
        if body.get("return_token_ids"):
            answer["prompt_token_ids"] = [7, 8, 9]
        if fault == "no-params":
            answer["kv_transfer_params"] = None
        else:
            block = next(_BLOCKS)
            _PINNED[block] = self
            self.pinned.add(block)
            answer["kv_transfer_params"] = {
                "do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[block]],
                "remote_engine_id": self.name, "remote_host": "127.0.0.1", "remote_port": 5600, "tp_size": 1,
            }  # fmt: skip
        return self._json(writer, 200, answer)

    async def _decode(self, body: dict, writer, fault: Any) -> bool:
        count = min(self.tokens, body.get("max_tokens") or self.tokens)
        usage: dict[str, Any] = {
            "prompt_tokens": 100, "completion_tokens": count, "total_tokens": 100 + count,
            "prompt_tokens_details": {"cached_tokens": 96 if body.get("kv_transfer_params") else 32},
        }  # fmt: skip
        if not body.get("stream") and fault != "stream":
            for _ in range(count):
                await asyncio.sleep(self.step_s)
            text = "".join(f"t{i} " for i in range(count))
            message = {
                "index": 0,
                "text": text,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "length",
            }
            answer = {
                "id": "d",
                "choices": [message],
                "usage": usage,
                "kv_transfer_params": None,
                "engine": self.name,
            }
            if fault == "leak":
                answer["kv_transfer_params"] = {"remote_block_ids": [[7]], "remote_host": "10.1.2.3"}
            return self._json(writer, 200, answer)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for i in range(count):
            await asyncio.sleep(self.step_s)
            if fault == "drop-mid" and i == count // 2:
                writer.transport.abort()
                return False
            if fault == "drop-mid-chunk" and i == count // 2:
                writer.write(b"ff\r\ndata: {")
                await writer.drain()
                writer.transport.abort()
                return False
            if fault == "hang-mid" and i == count // 2:
                await asyncio.sleep(3600)
            if fault == "error-mid" and i == count // 2:
                self._event(writer, {"error": {"message": "scripted", "code": 500}})
                break
            reason = None if i < count - 1 else ("abort" if fault == "abort-end" else "length")
            event = {
                "id": "d",
                "choices": [
                    {"index": 0, "text": f"t{i} ", "delta": {"content": f"t{i} "}, "finish_reason": reason}
                ],
            }
            if fault == "leak" and i == count - 1:
                event["kv_transfer_params"] = {"remote_block_ids": [[7]], "remote_host": "10.1.2.3"}
            self._event(writer, event)
            await writer.drain()
        options = body.get("stream_options")
        if options is not None and options.get("include_usage", True):
            self._event(writer, {"id": "d", "choices": [], "usage": usage})
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()
        return True

    def _event(self, writer, event: dict) -> None:
        data = b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _json(self, writer, status: int, said: dict) -> bool:
        return self._whole(writer, status, json.dumps(said, separators=(",", ":")).encode())

    def _whole(self, writer, status: int, body: bytes, kind: str = "application/json") -> bool:
        writer.write(
            b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b\r\n%b"
            % (status, kind.encode(), len(body), self.extra, body)
        )
        return True
