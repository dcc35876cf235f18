"""What each API's whole answers look like. Knows no scheduler and no sockets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from disaggc.simengine.asks import Ask

Said = dict[str, Any]
_OBJECTS = {"completions": "text_completion", "chat": "chat.completion"}


@dataclass(slots=True)
class Choice:
    """One finished (or growing) choice."""

    index: int
    text: str
    reason: str | None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None
    prompt_ids: list[int] | None = None
    logprobs: Said | None = None
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Token counts of an answer."""

    prompt: int
    completion: int
    cached: int | None

    def openai(self) -> Said:
        """As the OpenAI APIs say it."""
        details = {"cached_tokens": self.cached} if self.cached is not None else None
        return {
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.completion,
            "completion_tokens": self.completion,
            "prompt_tokens_details": details,
            "completion_tokens_details": None,
        }

    def named(self) -> Said:
        """As the responses API says it."""
        return {
            "input_tokens": self.prompt,
            "input_tokens_details": {"cached_tokens": self.cached or 0},
            "output_tokens": self.completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.prompt + self.completion,
        }


def tool_calls(choice: Choice, *, streamed: bool) -> list[Said]:
    """One call with the text as its argument."""
    call: Said = {
        "id": f"chatcmpl-tool-{choice.index:08x}",
        "type": "function",
        "function": {"name": choice.tool, "arguments": json.dumps({"text": choice.text})},
    }
    return [{**call, "index": 0}] if streamed else [call]


class Whole:
    """The complete answer to one request."""

    def __init__(self, ask: Ask, name: str, *, created: int, fingerprint: str) -> None:
        self.ask, self.name, self.created, self._fingerprint = ask, name, created, fingerprint

    # --- whole ---

    def whole(self, choices: list[Choice], counts: Counts, params: Said | None) -> Said:
        """The complete answer."""
        match self.ask.api:
            case "responses":
                return self.response(choices[0], counts, params)
            case "messages":
                return self.message(choices[0], counts, params)
            case _:
                said = [self._whole_choice(c) for c in choices]
        return {
            "id": self.name,
            "object": _OBJECTS[self.ask.api],
            "created": self.created,
            "model": self.ask.model,
            "choices": said,
            "service_tier": None,
            "system_fingerprint": self._fingerprint,
            "usage": counts.openai(),
            **(
                {
                    "prompt_logprobs": None,
                    "prompt_token_ids": None if self.ask.batch else choices[0].prompt_ids,
                }
                if self.ask.api == "chat"
                else {}
            ),
            "kv_transfer_params": params,
            "ec_transfer_params": None,
            "metrics": None,
        }

    def _whole_choice(self, c: Choice) -> Said:
        tail = {"finish_reason": c.reason, "stop_reason": c.stop_reason, "token_ids": c.token_ids}
        if self.ask.api == "completions":
            ids = {"prompt_logprobs": None, "prompt_token_ids": c.prompt_ids, "routed_experts": None}
            return {"index": c.index, "text": c.text, "logprobs": c.logprobs, **tail, **ids}
        calls = {"tool_calls": tool_calls(c, streamed=False)} if c.tool else {}
        message = {
            "role": "assistant", "content": None if c.tool else c.text, "refusal": None, "annotations": None,
            "audio": None, "function_call": None, **calls, "reasoning": None,
        }  # fmt: skip
        if c.tool and c.reason in ("stop", "length"):
            tail["finish_reason"] = "tool_calls"
        return {"index": c.index, "message": message, "logprobs": c.logprobs, **tail, "routed_experts": None}

    def response(self, c: Choice, counts: Counts, params: Said | None) -> Said:
        """As the responses API says it."""
        status = {"length": "incomplete", "error": "failed", "abort": "failed"}.get(
            c.reason or "", "completed"
        )
        part: Said = {"type": "output_text", "text": c.text, "annotations": [], "logprobs": None}
        item = {
            "id": f"msg_{self.name[5:]}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [part],
        }
        return {
            "id": self.name, "object": "response", "created_at": self.created, "model": self.ask.model,
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "output": [item], "usage": counts.named(), "kv_transfer_params": params,
        }  # fmt: skip

    def message(self, c: Choice, counts: Counts, params: Said | None) -> Said:
        """As the messages API says it."""
        block = (
            {"type": "text", "text": c.text} if c.tool is None else {**tool_use(c), "input": {"text": c.text}}
        )
        return {
            "id": self.name, "type": "message", "role": "assistant", "content": [block],
            "model": self.ask.model, "stop_reason": anthropic(c), "stop_sequence": None,
            "usage": {"input_tokens": counts.prompt, "output_tokens": counts.completion}, "kv_transfer_params": params,
        }  # fmt: skip


def tool_use(c: Choice) -> Said:
    """The block of a call whose argument is yet to come."""
    return {"type": "tool_use", "id": f"chatcmpl-tool-{c.index:08x}", "name": c.tool, "input": {}}


def anthropic(c: Choice) -> str | None:
    """Why it ended in the words of the messages API."""
    if c.tool is not None and c.reason in ("stop", "length"):
        return "tool_use"
    return {"length": "max_tokens", "stop": "end_turn"}.get(c.reason or "", c.reason)
