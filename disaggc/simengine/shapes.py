"""What each API's answers look like: whole, and as events of a stream. Knows no scheduler and no sockets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from disaggc.simengine.asks import Ask

Said = dict[str, Any]
DONE = b"data: [DONE]\n\n"
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


def event(said: Said, name: str = "") -> bytes:
    """One event of a stream."""
    head = b"event: %b\n" % name.encode() if name else b""
    return head + b"data: " + json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def _tool_calls(choice: Choice, *, streamed: bool) -> list[Said]:
    call: Said = {
        "id": f"chatcmpl-tool-{choice.index:08x}",
        "type": "function",
        "function": {"name": choice.tool, "arguments": json.dumps({"text": choice.text})},
    }
    return [{**call, "index": 0}] if streamed else [call]


class Shape:
    """The answers to one request."""

    def __init__(self, ask: Ask, name: str, *, created: int, fingerprint: str) -> None:
        self.ask, self.name, self._created, self._fingerprint = ask, name, created, fingerprint

    # --- whole ---

    def whole(self, choices: list[Choice], counts: Counts, params: Said | None) -> Said:
        """The complete answer."""
        match self.ask.api:
            case "responses":
                return self._response(choices[0], counts, params)
            case "messages":
                return self._message(choices[0], counts, params)
            case _:
                said = [self._whole_choice(c) for c in choices]
        return {
            "id": self.name,
            "object": _OBJECTS[self.ask.api],
            "created": self._created,
            "model": self.ask.model,
            "choices": said,
            "service_tier": None,
            "system_fingerprint": self._fingerprint,
            "usage": counts.openai(),
            **(
                {"prompt_logprobs": None, "prompt_token_ids": choices[0].prompt_ids}
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
        calls = {"tool_calls": _tool_calls(c, streamed=False)} if c.tool else {}
        message = {
            "role": "assistant", "content": None if c.tool else c.text, "refusal": None, "annotations": None, "audio": None,
            "function_call": None, **calls, "reasoning": None,
        }  # fmt: skip
        if c.tool and c.reason in ("stop", "length"):
            tail["finish_reason"] = "tool_calls"
        return {"index": c.index, "message": message, "logprobs": c.logprobs, **tail, "routed_experts": None}

    def _response(self, c: Choice, counts: Counts, params: Said | None) -> Said:
        status = {"length": "incomplete", "error": "failed", "abort": "failed"}.get(
            c.reason or "", "completed"
        )
        part = {"type": "output_text", "text": c.text, "annotations": [], "logprobs": None}
        item = {
            "id": f"msg_{self.name[5:]}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [part],
        }
        return {
            "id": self.name, "object": "response", "created_at": self._created, "model": self.ask.model, "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "output": [item], "usage": counts.named(), "kv_transfer_params": params,
        }  # fmt: skip

    def _message(self, c: Choice, counts: Counts, params: Said | None) -> Said:
        return {
            "id": self.name, "type": "message", "role": "assistant", "content": [{"type": "text", "text": c.text}],
            "model": self.ask.model, "stop_reason": _anthropic(c.reason), "stop_sequence": None,
            "usage": {"input_tokens": counts.prompt, "output_tokens": counts.completion}, "kv_transfer_params": params,
        }  # fmt: skip

    # --- streams ---

    def opening(self, index: int, counts: Counts) -> bytes:
        """Events before the first word of a choice."""
        match self.ask.api:
            case "chat":
                return event(
                    self._chunk(
                        [
                            {
                                "index": index,
                                "delta": {"role": "assistant", "content": ""},
                                "logprobs": None,
                                "finish_reason": None,
                            }
                        ]
                    )
                )
            case "responses":
                empty = Choice(0, "", None)
                said = {
                    **self._response(empty, Counts(counts.prompt, 0, None), None),
                    "status": "in_progress",
                    "output": [],
                    "usage": None,
                }
                return event(
                    {"type": "response.created", "sequence_number": 0, "response": said}, "response.created"
                )
            case "messages":
                said = {
                    **self._message(Choice(0, "", None), Counts(counts.prompt, 0, None), None),
                    "content": [],
                    "stop_reason": None,
                }
                start = {
                    "type": "content_block_start",
                    "index": 0,
                    "content_block": {"type": "text", "text": ""},
                }
                return event({"type": "message_start", "message": said}, "message_start") + event(
                    start, "content_block_start"
                )
            case _:
                return b""

    def delta(self, c: Choice, usage: Said | None = None) -> bytes:
        """An event with more text."""
        match self.ask.api:
            case "responses":
                said = {
                    "type": "response.output_text.delta",
                    "item_id": "msg",
                    "output_index": 0,
                    "content_index": 0,
                    "delta": c.text,
                }
                return event(said, "response.output_text.delta")
            case "messages":
                said = {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "text_delta", "text": c.text},
                }
                return event(said, "content_block_delta")
            case "chat":
                delta: Said = {"tool_calls": _tool_calls(c, streamed=True)} if c.tool else {"content": c.text}
                choice: Said = {"index": c.index, "delta": delta}
            case _:
                choice = {"index": c.index, "text": c.text}
        reason = "tool_calls" if c.tool and c.reason in ("stop", "length") else c.reason
        choice |= {"logprobs": c.logprobs, "finish_reason": reason, "stop_reason": c.stop_reason}
        if c.token_ids is not None:
            choice |= {"token_ids": c.token_ids}
        return event(self._chunk([choice], usage))

    def around(self, index: int) -> tuple[bytes, bytes]:
        """What stands before and after the text in an event with nothing but more text."""
        before, _, after = self.delta(Choice(index, "\0", None)).partition(b"\\u0000")
        return before, after

    def closing(self, c: Choice, counts: Counts, params: Said | None) -> bytes:
        """Events after the last word of the last choice."""
        match self.ask.api:
            case "responses":
                said = self._response(c, counts, params)
                kind = "response.failed" if said["status"] == "failed" else "response.completed"
                return event({"type": kind, "response": said}, kind) + DONE
            case "messages":
                stop = event({"type": "content_block_stop", "index": 0}, "content_block_stop")
                usage = {"input_tokens": counts.prompt, "output_tokens": counts.completion}
                said = {
                    "type": "message_delta",
                    "delta": {"stop_reason": _anthropic(c.reason)},
                    "usage": usage,
                }
                return stop + event(said, "message_delta") + event({"type": "message_stop"}, "message_stop")
            case _:
                # params ride on the last event with a choice; the token counts come after it
                usage_event = event(self._chunk([], counts.openai())) if self.ask.usage else b""
                return usage_event + DONE

    def last(self, c: Choice, params: Said | None) -> bytes:
        """The event with the last text of a choice and why it ended."""
        if self.ask.api in ("responses", "messages"):
            return self.delta(c) if c.text else b""
        said = self.delta(c)
        if params is None:
            return said
        return (
            said[:-3]
            + b',"kv_transfer_params":'
            + json.dumps(params, separators=(",", ":")).encode()
            + b"}\n\n"
        )

    def _chunk(self, choices: list[Said], usage: Said | None = None) -> Said:
        kind = "chat.completion.chunk" if self.ask.api == "chat" else "text_completion"
        said = {
            "id": self.name,
            "object": kind,
            "created": self._created,
            "model": self.ask.model,
            "choices": choices,
        }
        return {**said, "usage": usage} if usage is not None else said


def _anthropic(reason: str | None) -> str | None:
    return {"length": "max_tokens", "stop": "end_turn"}.get(reason or "", reason)
