"""The prompt blocks one engine still holds: what a trace's block ids say is shared, least recently used out first.

Holds ids and no KV; how much room there is, the engine says. Knows no request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from disaggc.perf.events.load import BLOCK_TOKENS


class PrefixCache:
    """Blocks by id; an id stands for everything before it too, so that only leading ones are found."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def tokens(self, blocks: Sequence[int]) -> int:
        """Leading prompt tokens that are here."""
        held = self._blocks
        for position, block in enumerate(blocks):
            if block not in held:
                return position * BLOCK_TOKENS
        return len(blocks) * BLOCK_TOKENS

    def use(self, blocks: Sequence[int], prompt: int) -> int:
        """The same, now in use; the last token of a prompt is always computed."""
        found = self.tokens(blocks)
        for block in blocks[: found // BLOCK_TOKENS]:
            self._blocks.move_to_end(block)
        return min(found, prompt - 1)

    def keep(self, blocks: Sequence[int], room_tokens: float) -> None:
        """Computed or fetched: the engine holds them until others need the room."""
        held = self._blocks
        for block in reversed(
            blocks
        ):  # the leading blocks are used last, so that a prefix loses its end first
            held[block] = None
            held.move_to_end(block)
        most = max(0, int(room_tokens // BLOCK_TOKENS))
        while len(held) > most:
            held.popitem(last=False)

    def clear(self) -> None:
        """The engine ended."""
        self._blocks.clear()
