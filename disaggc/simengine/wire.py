"""The side channel between doubles: lines of JSON over TCP, answers matched by number. Knows no engine.

Stands in for NIXL's handshake and reads, Mooncake's and MoRIIO's transfers; it is no other program's protocol.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

MAX_LINE = 64 << 20
Said = dict[str, Any]


class TransferError(Exception):
    """KV could not be had from the other side."""


class Peer:
    """One connection to another engine's side channel, opened when needed and again after it was lost."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._host, self._port, self._timeout_s = host, port, timeout_s
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[Said]] = {}
        self._number = 0
        self._reader: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self.met: Said | None = None
        """What the other side said of itself on this connection."""

    async def meet(self) -> Said:
        """Connect and shake hands, once per connection."""
        async with self._opening:
            if self.met is not None and self._writer is not None:
                return self.met
            try:
                async with asyncio.timeout(self._timeout_s):
                    reader, self._writer = await asyncio.open_connection(
                        self._host, self._port, limit=MAX_LINE
                    )
            except (OSError, TimeoutError) as exc:
                raise TransferError(
                    f"no side channel at {self._host}:{self._port}: {type(exc).__name__}"
                ) from None
            self._reader = asyncio.get_running_loop().create_task(self._listen(reader))
            self.met = await self._ask({"op": "meta"}, self._timeout_s)
            return self.met

    async def ask(self, said: Said, timeout_s: float | None) -> Said:
        """The answer; TransferError when it says `error`, does not come, or the connection is lost."""
        await self.meet()
        return await self._ask(said, timeout_s)

    async def tell(self, said: Said) -> None:
        """Say something that has no answer; a peer that is gone need not know."""
        with suppress(TransferError):
            await self.meet()
            self._write(said)

    async def _ask(self, said: Said, timeout_s: float | None) -> Said:
        self._number += 1
        number = self._number
        future: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._write({**said, "id": number})
            async with asyncio.timeout(timeout_s):
                answer = await future
        except TimeoutError:
            raise TransferError("the other side does not answer") from None
        finally:
            self._waiting.pop(number, None)
            if future.cancelled() or not future.done():
                self._write({"op": "never-mind", "of": number})
        if "error" in answer:
            raise TransferError(str(answer["error"]))
        return answer

    def _write(self, said: Said) -> None:
        if self._writer is None or self._writer.is_closing():
            raise TransferError("the connection is lost")
        self._writer.write(json.dumps(said).encode() + b"\n")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                answer = json.loads(line)
                future = self._waiting.get(answer.get("id"))
                if future is not None and not future.done():
                    future.set_result(answer)
        except (OSError, ValueError):
            pass
        finally:
            self._lose()

    def _lose(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self.met = None, None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(TransferError("the connection is lost"))

    def close(self) -> None:
        """End the connection."""
        if self._reader is not None:
            self._reader.cancel()
        self._lose()


class SideChannel:
    """Listens for other engines. answer: what to say to one message, None = nothing."""

    def __init__(self, answer: Callable[[Said], Awaitable[Said | None]]) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self, host: str, port: int) -> int:
        """The port it listens on; OSError when it is taken."""
        self._server = await asyncio.start_server(self._client, host, port, limit=MAX_LINE)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def close(self) -> None:
        """Listen no more and end every connection."""
        if self._server is not None:
            self._server.close()
        for writer in self._open:
            writer.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        running: dict[int, asyncio.Task[None]] = {}
        try:
            while line := await reader.readline():
                said = json.loads(line)
                number = said.get("id", 0)
                if said.get("op") == "never-mind":
                    task = running.pop(said.get("of"), None)
                    if task is not None:
                        task.cancel()
                    continue
                task = asyncio.get_running_loop().create_task(self._reply(said, number, writer))
                running[number] = task
                task.add_done_callback(partial(_forget, running, number))
        except (OSError, ValueError):
            pass
        finally:
            for task in [*running.values()]:
                task.cancel()
            self._open.discard(writer)
            writer.close()

    async def _reply(self, said: Said, number: int, writer: asyncio.StreamWriter) -> None:
        answer = await self._answer(said)
        if answer is not None and not writer.is_closing():
            writer.write(json.dumps({**answer, "id": number}).encode() + b"\n")


def _forget(running: dict[int, asyncio.Task[None]], number: int, _task: asyncio.Task[None]) -> None:
    running.pop(number, None)
