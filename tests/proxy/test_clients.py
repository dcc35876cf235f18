"""Clients that people use, unchanged: the official openai client, and curl."""

import asyncio
import json
import shutil
from typing import Any

import openai
import pytest

from tests.proxy.harness import Stack, run
from tests.proxy.paired import Engines
from tests.simengine.doubles import transfer

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
LONG = [{"role": "user", "content": "hello " * 100}]


def test_openai_client():
    async def go():
        async with Stack().up() as s:
            client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="k", max_retries=0)
            answer = await client.chat.completions.create(
                model="m", messages=LONG, tools=TOOLS, logprobs=True, top_logprobs=2, stop=["x"]
            )
            assert answer.choices[0].message.content == "t0 t1 t2 t3 "
            assert answer.usage.completion_tokens == 4
            first, second = s.prefills[0].seen[-1]["body"], s.decodes[0].seen[-1]["body"]
            assert first["tools"] == TOOLS
            assert "logprobs" not in first
            assert (second["logprobs"], second["top_logprobs"], second["stop"]) == (True, 2, ["x"])
            stream = await client.chat.completions.create(
                model="m", messages=LONG, stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
            assert "".join(c.choices[0].delta.content for c in chunks if c.choices) == "t0 t1 t2 t3 "
            assert chunks[-1].usage.prompt_tokens == 100
            await client.chat.completions.create(model="m", messages=LONG, n=2)
            assert "kv_transfer_params" not in s.decodes[0].seen[-1]["body"]
            models = [model.id async for model in client.models.list()]
            assert models == ["m"]
            with pytest.raises(openai.NotFoundError):
                await client.chat.completions.create(model="other", messages=LONG)
            s.decodes[0].script.append("drop-mid")
            stream = await client.chat.completions.create(model="m", messages=LONG, stream=True)
            with pytest.raises(openai.APIError, match="decode failed"):
                _ = [chunk async for chunk in stream]
            await client.close()

    run(go())


class Said:
    """What one client saw of one server, by call."""

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self.client = client

    async def chat(self, **more: Any) -> Any:
        return await self.client.chat.completions.create(model="m", messages=LONG, temperature=0, **more)

    async def whole(self) -> dict[str, Any]:
        """Not streamed: text, tools, logprobs, several choices, stop, usage."""
        plain = await self.chat(max_tokens=12)
        stop = plain.choices[0].message.content[10:16]
        stopped = await self.chat(max_tokens=12, stop=[stop])
        scored = await self.chat(max_tokens=5, logprobs=True, top_logprobs=2)
        called = await self.chat(max_tokens=5, tools=TOOLS, tool_choice="required")
        several = await self.chat(max_tokens=5, n=3)
        old = await self.client.completions.create(
            model="m", prompt="word " * 200, max_tokens=5, logprobs=2, temperature=0, echo=False
        )
        batch = await self.client.completions.create(
            model="m", prompt=["one " * 90, "two " * 90], max_tokens=4, temperature=0
        )
        new = await self.client.responses.create(model="m", input="hello " * 100, max_output_tokens=6)
        return {
            "plain": plain.choices[0].message.content,
            "usage": (plain.usage.prompt_tokens, plain.usage.completion_tokens, plain.usage.total_tokens),
            "length": plain.choices[0].finish_reason,
            "stopped": (stopped.choices[0].message.content, stopped.choices[0].finish_reason),
            "scored": [(t.token, len(t.top_logprobs)) for t in scored.choices[0].logprobs.content],
            "called": [c.function.name for c in called.choices[0].message.tool_calls],
            "calls": called.choices[0].finish_reason,
            "several": [c.message.content for c in several.choices],
            "old": (old.choices[0].text, old.choices[0].logprobs.tokens),
            "batch": [c.text for c in batch.choices],
            "new": (new.output_text, new.usage.output_tokens),
        }

    async def streamed(self) -> dict[str, Any]:
        """The same in streams, with and without the usage at their end."""
        found: dict[str, Any] = {}
        for name, more in {
            "plain": {"max_tokens": 12},
            "usage": {"max_tokens": 12, "stream_options": {"include_usage": True}},
            "scored": {"max_tokens": 5, "logprobs": True, "top_logprobs": 2},
            "called": {"max_tokens": 5, "tools": TOOLS, "tool_choice": "required"},
            "several": {"max_tokens": 5, "n": 2},
        }.items():
            texts: dict[int, str] = {}
            scores, calls, ends, usage = 0, [], [], None
            async for chunk in await self.chat(stream=True, **more):
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
                    scores += len(choice.logprobs.content) if choice.logprobs else 0
                    calls += [c.function.name for c in choice.delta.tool_calls or () if c.function.name]
                    ends += [choice.finish_reason] if choice.finish_reason else []
            count = None if usage is None else (usage.prompt_tokens, usage.completion_tokens)
            found[name] = (texts, scores, calls, ends, count)
        stream = await self.client.responses.create(
            model="m", input="hello " * 100, max_output_tokens=6, stream=True
        )
        found["new"] = "".join([e.delta async for e in stream if e.type == "response.output_text.delta"])
        return found


def test_the_openai_client_sees_what_one_engine_alone_would_say():
    async def go():
        alone = await Engines().start()
        prefills, decodes = [Engines(*transfer())], [Engines(*transfer())]
        table = {"max_model_len": 2048, "timeouts": {}}
        async with Stack(prefills=prefills, decodes=decodes, table=table).up() as s:
            seen = []
            for port in (alone.port, s.port):
                client = openai.AsyncOpenAI(
                    base_url=f"http://127.0.0.1:{port}/v1", api_key="k", max_retries=0, timeout=20
                )
                said = Said(client)
                seen.append((await said.whole(), await said.streamed()))
                await client.close()
            assert seen[0] == seen[1]
            whole, streamed = seen[1]
            assert whole["usage"][1] == 12
            assert len(whole["several"]) == 3
            assert whole["stopped"][1] == "stop"
            assert whole["called"] == ["f"]
            assert streamed["usage"][4] == whole["usage"][:2]
            assert streamed["plain"][4] is None
            assert streamed["plain"][0][0] == whole["plain"]
            assert await decodes[0].fetched() > 0
        await alone.stop()

    run(go())


def test_curl():
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")

    async def go():
        async with Stack().up() as s:
            url = f"http://127.0.0.1:{s.port}/v1/completions"
            for size in (600, 3_000_000):
                body = json.dumps(
                    {"model": "m", "prompt": "x " * (size // 2), "max_tokens": 2, "stream": True}
                )
                process = await asyncio.create_subprocess_exec(
                    "curl", "-sSN", "--max-time", "20", url, "-H", "content-type: application/json", "-d", "@-",
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                )  # fmt: skip
                said, _ = await process.communicate(body.encode())
                assert process.returncode == 0
                if size == 600:
                    assert said.endswith(b"data: [DONE]\n\n")
                else:
                    assert b"error" in said or said.endswith(b"data: [DONE]\n\n")

    run(go())
