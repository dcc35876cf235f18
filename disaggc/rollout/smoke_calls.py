"""Requests a smoke test sends: completions with KV hand-over, metrics, release. Judges nothing."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import aiohttp

from disaggc.rollout.smoke_metrics import Metrics, read_metrics
from disaggc.rollout.smoke_model import ClientKey

ASK_REMOTE_DECODE: Mapping[str, object] = {
    "do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
    "remote_host": None, "remote_port": None,
}  # fmt: skip
_MOST_BYTES = 64 << 20


class CallError(Exception):
    """No usable answer; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion. tokens: ids where the engine tells them, else None."""

    text: str
    tokens: tuple[int, ...] | None
    kv_params: Mapping[str, object] | None
    prompt_tokens: int

    def same_as(self, other: Answer) -> bool:
        """Whether the same tokens were generated."""
        if self.tokens is not None and other.tokens is not None:
            return self.tokens == other.tokens
        return self.text == other.text


class Caller:
    """One session of requests, each with the same deadline."""

    def __init__(self, model: str, *, key: ClientKey, timeout_s: float) -> None:
        self.model = model
        self._key = key
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open it; the proxy settings of the environment are not for engines."""
        self._session = aiohttp.ClientSession(timeout=self._timeout, trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        if self._session is not None:
            await self._session.close()

    async def tokens(self, url: str, count: int) -> list[int]:
        """So many token ids of a text that no engine has seen before."""
        words = " ".join(secrets.token_hex(3) for _ in range(count))
        answer = await self._post(f"{url}/tokenize", {"model": self.model, "prompt": words})
        found = answer.get("tokens")
        if not isinstance(found, list) or len(found) < count:
            raise CallError(f"{url}/tokenize gives no tokens")
        return [int(token) for token in found[:count]]

    async def complete(
        self,
        url: str,
        prompt: Sequence[int],
        *,
        most: int,
        params: Mapping[str, object] | None = None,
        guarded: bool = False,
    ) -> Answer:
        """Greedy completion of exactly `most` tokens. guarded: present the clients' key."""
        body = {**self._asked(prompt, most), "return_token_ids": True}
        if params is not None:
            body["kv_transfer_params"] = dict(params)
        return _answer(await self._post(f"{url}/v1/completions", body, guarded=guarded), url)

    async def stream(self, url: str, prompt: Sequence[int], *, most: int) -> str:
        """The same through a proxy, streamed; the joined text."""
        body = {**self._asked(prompt, most), "stream": True}
        text = []
        async with self._request(
            "POST", f"{url}/v1/completions", json=body, headers=self._headers()
        ) as answer:
            if answer.status != 200:
                raise self._refused(url, answer.status, await answer.text())
            async for line in answer.content:
                if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                    chunk = json.loads(line[6:])
                    if "error" in chunk:
                        raise CallError(f"{url} ends the stream with an error: {str(chunk['error'])[:200]}")
                    text += [choice.get("text", "") for choice in chunk.get("choices", [])]
        return "".join(text)

    async def break_off(self, url: str, prompt: Sequence[int], *, most: int) -> None:
        """Start a streamed request at a proxy and hang up after its first bytes."""
        body = {**self._asked(prompt, most), "stream": True}
        async with self._request(
            "POST", f"{url}/v1/completions", json=body, headers=self._headers()
        ) as answer:
            if answer.status != 200:
                raise self._refused(url, answer.status, await answer.text())
            await answer.content.readany()

    async def release(self, url: str, params: Mapping[str, object]) -> None:
        """Tell prefill, by way of a decode engine that refuses the request, that nobody will fetch its KV."""
        body = {
            "model": "disaggc-release",
            "messages": [{"role": "user", "content": "."}],
            "max_tokens": 1,
            "kv_transfer_params": dict(params),
        }
        async with self._request("POST", f"{url}/v1/chat/completions", json=body) as answer:
            await answer.read()
            if answer.status != 404:
                raise CallError(f"{url} answers {answer.status} to a model it does not have, 404 is right")

    async def metrics(self, url: str) -> Metrics:
        """One scrape."""
        async with self._request("GET", f"{url}/metrics") as answer:
            if answer.status != 200:
                raise CallError(f"{url}/metrics answers {answer.status}")
            return read_metrics((await answer.content.read(_MOST_BYTES)).decode("utf-8", "replace"))

    async def models(self, url: str) -> tuple[str, ...]:
        """Names the engine serves."""
        async with self._request("GET", f"{url}/v1/models", headers=self._headers()) as answer:
            if answer.status != 200:
                raise self._refused(f"{url}/v1/models", answer.status, await answer.text())
            listed = await answer.json(content_type=None)
        return tuple(str(one.get("id")) for one in listed.get("data", []))

    def _asked(self, prompt: Sequence[int], most: int) -> dict[str, object]:
        return {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": most,
            "temperature": 0,
            "seed": 0,
            "ignore_eos": True,
        }

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key.value}"} if self._key.value else {}

    def _refused(self, url: str, status: int, text: str) -> CallError:
        if status != 401:
            return CallError(f"{url} answers {status}: {text[:200]}")
        if self._key.value:
            return CallError(f"{url} answers 401: what {self._key.source} holds is not its key")
        return CallError(f"{url} answers 401: it wants a key, and {self._key.source} holds none")

    async def _post(self, url: str, body: Mapping[str, object], *, guarded: bool = False) -> dict[str, Any]:
        headers = self._headers() if guarded else {}
        async with self._request("POST", url, json=body, headers=headers) as answer:
            text = await answer.text()
            if answer.status != 200:
                raise self._refused(url, answer.status, text)
        try:
            document = json.loads(text)
        except ValueError:
            raise CallError(f"{url} answers no JSON") from None
        if not isinstance(document, dict):
            raise CallError(f"{url} answers no JSON object")
        return document

    def _request(self, method: str, url: str, **more: Any) -> _Reply:
        if self._session is None:
            raise RuntimeError("the session is not open")
        return _Reply(self._session.request(method, url, **more), url)


class _Reply:
    """An answer whose failures to arrive are CallErrors."""

    def __init__(self, request: Any, url: str) -> None:
        self._request = request
        self._url = url

    async def __aenter__(self) -> aiohttp.ClientResponse:
        try:
            answer: aiohttp.ClientResponse = await self._request.__aenter__()
        except TimeoutError:
            raise CallError(f"{self._url} does not answer in time") from None
        except (aiohttp.ClientError, OSError) as problem:
            raise CallError(f"{self._url} cannot be reached: {problem}") from None
        return answer

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: object
    ) -> None:
        await self._request.__aexit__(kind, problem, trace)
        if isinstance(problem, asyncio.TimeoutError):
            raise CallError(f"{self._url} does not finish its answer in time") from None
        if isinstance(problem, aiohttp.ClientError | OSError):
            raise CallError(f"{self._url} breaks its answer off: {problem}") from None


def _answer(document: Mapping[str, Any], url: str) -> Answer:
    try:
        choice = document["choices"][0]
        ids = choice.get("token_ids")
        params = document.get("kv_transfer_params")
        return Answer(
            text=str(choice.get("text", "")),
            tokens=tuple(map(int, ids)) if isinstance(ids, list) else None,
            kv_params=params if isinstance(params, dict) else None,
            prompt_tokens=int((document.get("usage") or {}).get("prompt_tokens", 0)),
        )
    except (KeyError, IndexError, TypeError, ValueError):
        raise CallError(f"{url} answers something that is no completion: {str(document)[:200]}") from None
