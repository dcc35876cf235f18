"""Bodies that differ from an earlier one only in their prompt are not taken apart again.

The text before and after the prompt decides everything about a body but the prompt's size and kind, so it is kept, once
it was seen twice, with what it was read as. The prompt itself is always walked to its end. Knows no sockets.
"""

from __future__ import annotations

import re
from dataclasses import replace

from disaggc.proxy.asks import OPAQUE, PROMPT_KEYS, Api, Ask, parse_ask
from disaggc.proxy.members import NotAnObjectError, value_end

MAX_OPTIONS = 1024
"""Bytes on either side of the prompt; longer ones are read each time."""
MAX_SHAPES = 512
_QUOTE = 0x22
_START = {
    api: re.compile(b'"%b"[ \\t\\r\\n]*+:[ \\t\\r\\n]*+' % keys[0].encode())
    for api, keys in PROMPT_KEYS.items()
}


class Shapes:
    """A bounded memory of what stands around prompts."""

    __slots__ = ("_once", "_shapes", "_starts")

    def __init__(self) -> None:
        self._once: set[int] = set()
        self._starts: set[bytes] = set()
        self._shapes: dict[tuple[Api, bytes, bytes], Ask] = {}

    def read(self, api: Api, body: bytes) -> Ask:
        """As `parse_ask`, and refusing the same."""
        opening = _START[api].search(body, 0, MAX_OPTIONS)
        if opening is None:
            return parse_ask(api, body)
        start = opening.end()
        before = body[:start]
        if before not in self._starts or (api is Api.COMPLETIONS and body[start : start + 1] != b'"'):
            return self._learn(parse_ask(api, body), start)
        try:
            end = value_end(body, start)
        except NotAnObjectError:
            return parse_ask(api, body)
        known = self._shapes.get((api, before, body[end : end + MAX_OPTIONS + 1]))
        if known is None:
            return self._learn(parse_ask(api, body), start)
        return Ask(
            api, body, None, known.stream, known.model, end - start, None,
            countable=api is Api.COMPLETIONS or not any(body.find(mark, start, end) >= 0 for mark in OPAQUE),
            output_limit=known.output_limit, single=known.single, stateful=known.stateful,
            hide_usage=known.hide_usage, stripped=known.stripped,
            around_prefill=known.around_prefill, around_decode=known.around_decode, prompt=(start, end),
        )  # fmt: skip

    def _learn(self, ask: Ask, start: int) -> Ask:
        """Remember what stands around the prompt, if it is the only one and this was seen before."""
        prompts = [m for m in ask.found if m.key in PROMPT_KEYS[ask.api]]
        if len(prompts) != 1 or prompts[0].value != start or any(m.key == "vllm_xargs" for m in ask.found):
            return ask
        if ask.prompt_tokens is not None or (ask.api is Api.COMPLETIONS and ask.body[start] != _QUOTE):
            return ask
        before, after = ask.body[:start], ask.body[prompts[0].end :]
        if len(after) > MAX_OPTIONS:
            return ask
        mark = hash((ask.api, before, after))
        if mark not in self._once:
            if len(self._once) >= 8 * MAX_SHAPES:
                self._once.clear()
            self._once.add(mark)
            return ask
        if len(self._shapes) >= MAX_SHAPES:
            self._shapes.clear()
            self._starts.clear()
        self._starts.add(before)
        self._shapes[ask.api, before, after] = replace(
            ask, body=b"", members=None, around_prefill=ask.around(prompts[0], prefill=True),
            around_decode=ask.around(prompts[0], prefill=False),
        )  # fmt: skip
        return ask
