"""One step of the scheduler as plain arithmetic: which prompts get how many tokens, and how long it takes."""

from __future__ import annotations

from disaggc.simengine.sequence import Sequence
from disaggc.simengine.timing import Timing

Chunks = list[tuple[Sequence, int]]


def chunks(prefilling: list[Sequence], budget: int) -> Chunks:
    """Prompt tokens for each sequence, in order, as far as the budget goes."""
    found: Chunks = []
    for sequence in prefilling:
        if budget <= 0:
            break
        part = min(sequence.target - sequence.computed, budget)
        found.append((sequence, part))
        budget -= part
    return found


def duration_s(batch: list[Sequence], parts: Chunks, timing: Timing) -> float:
    """Model time of a step that decodes a batch and computes chunks of prompts.

    A sequence whose KV was fetched computes its last prompt token as any decode step does.
    """
    fetched = [s for s, part in parts if part == 1 and s.external]
    deciding = [*batch, *fetched] if fetched else batch
    prompt = sum(part for _, part in parts) - len(fetched)
    squares = 0.0
    if prompt:
        squares = sum(
            (s.computed + part) ** 2 - s.computed**2 for s, part in parts if part > 1 or not s.external
        )
    context = sum([s.prompt + s.generated for s in deciding])
    window = timing.decode.window_tokens
    windowed = sum([min(s.prompt + s.generated, window) for s in deciding]) if window else 0
    return timing.step_s(len(deciding), context, windowed, prompt=prompt, squares=squares)


def plain_word(sequence: Sequence) -> bool:
    """One more word, where neither an end nor a new block is near; False where one is, and then nothing was done.

    Nearly all words are made here, and nearly all of a double's time is spent on them.
    """
    generated = sequence.generated + 1
    if generated >= sequence.plain or sequence.room <= 0:
        return False
    sequence.generated = generated
    sequence.room -= 1
    out = sequence.out
    out.append(sequence.continuation.next())
    if len(out) >= sequence.wish.interval:
        sequence.sink.push(sequence, out)
        sequence.out = []
    return True
