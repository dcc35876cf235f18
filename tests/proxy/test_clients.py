"""Clients that people use, unchanged: the official openai client where it is installed, and curl."""

import asyncio
import json
import shutil

import pytest

from tests.proxy.harness import Stack, run

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
LONG = [{"role": "user", "content": "hello " * 100}]


def test_openai_client():
    openai = pytest.importorskip("openai", reason="the openai client is not installed")

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
