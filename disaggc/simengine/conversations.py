"""The texts that a chat template would make of messages: of one conversation, or of each of a batch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from disaggc.simengine.refusal import RefusedError

Body = dict[str, Any]


def conversations(body: Body) -> Iterator[str]:
    """Of every conversation of a batch, whose limits are vLLM's (BatchChatCompletionRequest)."""
    if body.get("n") not in (None, 1):
        raise _not_of_batches("`n > 1`", "n")
    if body.get("use_beam_search"):
        raise _not_of_batches("beam search", "use_beam_search")
    if body.get("tool_choice") not in (None, "none"):
        raise _not_of_batches("tools", "tool_choice")
    if (body.get("kv_transfer_params") or {}).get("prompt_token_ids") is not None:
        raise _not_of_batches(
            "`kv_transfer_params['prompt_token_ids']`", "kv_transfer_params.prompt_token_ids"
        )
    for messages in body["messages"]:
        yield conversation("chat", {"messages": messages})


def _not_of_batches(what: str, param: str) -> RefusedError:
    return RefusedError(400, f"Batch chat completions do not support {what}.", param=param, handled=False)


def conversation(api: str, body: Body) -> str:
    """The text a chat template would make: every role and content, and the tools."""
    turns: list[Any] = []
    if api == "responses":
        said = body.get("input")
        turns = [{"role": "user", "content": said}] if isinstance(said, str) else list(said or ())
        if body.get("instructions"):
            turns.insert(0, {"role": "system", "content": body["instructions"]})
    else:
        messages = body.get("messages")
        if messages is None:
            raise RefusedError(400, "messages: Field required", param="messages", handled=False)
        turns = messages
        if body.get("system"):
            turns = [{"role": "system", "content": body["system"]}, *turns]
    parts = [f"<|{t.get('role', 'user')}|>\n{_content(t)}\n" for t in turns if isinstance(t, dict)]
    if not parts:
        raise RefusedError(400, "no messages", param="messages")
    tools = json.dumps(body["tools"], sort_keys=True) + "\n" if body.get("tools") else ""
    return tools + "".join(parts) + "<|assistant|>\n"


def _content(turn: Mapping[str, Any]) -> str:
    content = turn.get("content")
    if isinstance(content, list):
        content = "".join(str(p.get("text", "")) for p in content if isinstance(p, dict))
    calls = json.dumps(turn["tool_calls"], sort_keys=True) if turn.get("tool_calls") else ""
    return f"{content or ''}{calls}"
