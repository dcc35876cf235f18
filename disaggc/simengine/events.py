"""What each API's answers look like as events of a stream. Knows no scheduler and no sockets."""

from __future__ import annotations

import json

from disaggc.simengine.shapes import Choice, Counts, Said, Whole, anthropic, tool_calls, tool_use

DONE = b"data: [DONE]\n\n"


def event(said: Said, name: str = "") -> bytes:
    """One event of a stream."""
    head = b"event: %b\n" % name.encode() if name else b""
    return head + b"data: " + json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def failure(api: str, said: Said) -> bytes:
    """The last events of a stream that fails; the messages API has a form of its own, and no mark of the end."""
    if api == "messages" and "error" in said:
        return event(in_anthropics_words(said, "internal_error"), "error")
    return event(said) + DONE


def in_anthropics_words(said: Said, kind: str = "") -> Said:
    """An error as the handler of the messages API passes it on."""
    error = said["error"]
    return {"type": "error", "error": {"type": kind or error["type"], "message": error["message"]}}


class Shape(Whole):
    """The answer to one request, whole or as a stream."""

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
                    **self.response(empty, Counts(counts.prompt, 0, None), None),
                    "status": "in_progress",
                    "output": [],
                    "usage": None,
                }
                return event(
                    {"type": "response.created", "sequence_number": 0, "response": said}, "response.created"
                )
            case "messages":
                said = {
                    **self.message(Choice(0, "", None), Counts(counts.prompt, 0, None), None),
                    "content": [],
                    "stop_reason": None,
                }
                block = {"type": "text", "text": ""}
                if self.ask.tool is not None:
                    block = tool_use(Choice(0, "", None, tool=self.ask.tool))
                start = {"type": "content_block_start", "index": 0, "content_block": block}
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
                part = {"type": "text_delta", "text": c.text}
                if c.tool is not None:
                    part = {"type": "input_json_delta", "partial_json": json.dumps({"text": c.text})}
                said = {"type": "content_block_delta", "index": 0, "delta": part}
                return event(said, "content_block_delta")
            case "chat":
                delta: Said = {"tool_calls": tool_calls(c, streamed=True)} if c.tool else {"content": c.text}
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
                said = self.response(c, counts, params)
                kind = "response.failed" if said["status"] == "failed" else "response.completed"
                return event({"type": kind, "response": said}, kind) + DONE
            case "messages":
                stop = event({"type": "content_block_stop", "index": 0}, "content_block_stop")
                usage = {"input_tokens": counts.prompt, "output_tokens": counts.completion}
                said = {
                    "type": "message_delta",
                    "delta": {"stop_reason": anthropic(c), "stop_sequence": None},
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
            "created": self.created,
            "model": self.ask.model,
            "choices": choices,
        }
        return {**said, "usage": usage} if usage is not None else said
