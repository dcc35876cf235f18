"""Blocks for sequences: room for a prompt, cached prefixes first, and what is written into it. Knows no schedule."""

from __future__ import annotations

from disaggc.simengine.blocks import BlockPool, Content, chained, context_of
from disaggc.simengine.metrics import Counters
from disaggc.simengine.options import Options
from disaggc.simengine.sequence import Sequence
from disaggc.simengine.tokens import Continuation


class Places:
    """The block pool as sequences use it."""

    def __init__(self, options: Options, counters: Counters) -> None:
        self._size, self._counters = options.block_size, counters
        self.pool = BlockPool(options.kv_tokens // options.block_size, caching=options.caching)

    def allot(self, sequence: Sequence) -> bool:
        """Blocks for all tokens to compute, cached ones first."""
        size, value = self._size, self._counters.value
        usable = sequence.digests[: (sequence.prompt - 1) // size]
        hits = self.pool.hits(usable)
        wanted = -(-sequence.target // size) - len(hits)
        if wanted > self.pool.free:
            self.pool.give_back(hits)
            return False
        sequence.blocks = hits + self.pool.take(wanted)
        sequence.cached = sequence.computed = len(hits) * size
        sequence.room = len(sequence.blocks) * size - sequence.target
        if not sequence.preemptions:
            value["prefix_cache_queries"] += sequence.prompt
            value["prefix_cache_hits"] += sequence.cached
        return True

    def write(self, sequence: Sequence, contents: list[Content]) -> None:
        """Fill the blocks behind the cached ones; full ones can be found by later prompts."""
        first = sequence.cached // self._size
        full = sequence.prompt // self._size
        for at, content in enumerate(contents, start=first):
            self.pool.write(sequence.blocks[at], content, sequence.digests[at] if at < full else None)

    def begin(self, sequence: Sequence) -> None:
        """The prompt is computed: its blocks are full, and what follows is what attention sees in them."""
        if not sequence.external:
            self.write(sequence, chained(sequence.digests)[sequence.cached // self._size :])
        contents = [self.pool.content(b) for b in sequence.blocks[: len(sequence.digests)]]
        choice = sequence.index if sequence.wish.distinct else 0
        sequence.continuation = Continuation(context_of(contents), choice)

    def grow(self, sequence: Sequence) -> None:
        """One more block."""
        sequence.blocks += self.pool.take(1)
        sequence.room = self._size

    def leave(self, sequence: Sequence) -> None:
        """Give all blocks back."""
        self.pool.give_back(sequence.blocks)
        sequence.blocks = []
