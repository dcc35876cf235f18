"""One generation request on its way out: collects the words of its choices, frames them, counts them.

The plain case, a stream of text and nothing else, costs one concatenation and one write per push.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from disaggc.simengine.asks import Ask
from disaggc.simengine.events import Shape, failure, in_anthropics_words
from disaggc.simengine.http import Connection, chunk, chunks
from disaggc.simengine.scores import scores
from disaggc.simengine.sequence import Sequence
from disaggc.simengine.shapes import Choice, Counts
from disaggc.simengine.tokens import WORD_IDS, WORDS, detokenize

Said = dict[str, Any]
ERROR: Said = {
    "error": {"message": "Internal server error", "type": "InternalServerError", "param": None, "code": 500}
}


class Draft:
    """What one choice has so far."""

    __slots__ = ("around", "choice", "one", "sent", "text", "words")

    def __init__(self, index: int, around: tuple[bytes, bytes] | None) -> None:
        self.choice = Choice(index, "", None)
        self.around = around
        self.one = None if around is None else one_word(around)
        self.words: list[int] = []
        self.text = ""
        self.sent = 0


def one_word(around: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """What stands before and after the word in the chunk of an event with one word; all words are equally long."""
    before, after = around
    head, _, tail = chunk(before + bytes(len(WORDS[0])) + after).partition(bytes(len(WORDS[0])))
    return head, tail


class Answer:
    """The sink of a request's sequences. watch: asked before the first byte, after each push, and at the end."""

    def __init__(self, connection: Connection, ask: Ask, shape: Shape, *, details: bool) -> None:
        self.connection, self.ask, self.shape, self._details = connection, ask, shape, details
        self.sequences: list[Sequence] = []
        self.drafts: list[Draft] = []
        self.begun = False
        self.muted = False
        """Nothing more is said."""
        self.watch: Callable[[Answer, str], None] | None = None
        self.expected: Collection[object] = ()
        """What may happen after a push; while it is empty nobody needs to watch."""
        self.change_params: Callable[[Said], Said | None] | None = None
        self._open = 0
        self._params: Said | None = None
        self._failed = False
        plain = ask.logprobs is None and not (
            ask.token_ids or ask.stops or ask.stop_ids or ask.usage_each or ask.tool
        )
        self._plain = plain and ask.stream and ask.api != "responses"

    def add(self, sequence: Sequence) -> None:
        """One of the request's sequences, in order."""
        around = self.shape.around(sequence.index) if self._plain else None
        self.sequences.append(sequence)
        self.drafts.append(Draft(sequence.index, around))
        self._open += 1

    @property
    def out(self) -> int:
        """Words said so far, all choices together."""
        return sum(s.generated for s in self.sequences)

    # --- what sequences say ---

    def push(self, sequence: Sequence, words: list[int]) -> None:
        """More words of one choice."""
        draft = self.drafts[sequence.index]
        if draft.sent and draft.one is not None and len(words) == 1 and not (self.muted or self.expected):
            # nearly all of a stream's words come this way, one by one
            head, tail = draft.one
            self.connection.write(head + WORDS[words[0]] + tail)
            return
        if not self.ask.stream:
            draft.words += words
            return
        self._begin()
        if self.muted:
            return
        self._opened(draft)
        if draft.around is not None:
            before, after = draft.around
            text = b"".join([WORDS[w] for w in words])
            draft.sent += 1
            self.connection.write(chunk(before + text + after))
        else:
            self._careful(draft, words, None)
        if self.watch is not None:
            self.watch(self, "mid")

    def finish(self, sequence: Sequence, reason: str) -> None:
        """The end of one choice, with its last words."""
        draft = self.drafts[sequence.index]
        self._open -= 1
        draft.choice.reason, draft.choice.stop_reason = reason, sequence.stop_reason
        if sequence.params is not None:
            self._params = self.change_params(sequence.params) if self.change_params else sequence.params
        self._failed |= reason == "error"
        if not self.ask.stream:
            draft.words += sequence.out
            if self._open == 0:
                self._whole()
            return
        self._begin()
        if self.muted:
            return
        if self._failed:
            self._fail()
            return
        self._opened(draft)
        self._careful(draft, sequence.out, reason)
        if self._open == 0:
            counts = self._counts()
            last = draft.choice
            last.text = "".join(WORDS[w].decode() for w in draft.words)
            self.connection.write(chunks(self.shape.closing(last, counts, self._params)))
            self._end()

    def stopped(self, sequence: Sequence) -> bool:
        """Whether the word that was just made meets a stop condition."""
        word = sequence.out[-1]
        if WORD_IDS[word] in self.ask.stop_ids:
            sequence.stop_reason = WORD_IDS[word]
            return True
        if not self.ask.stops:
            return False
        draft = self.drafts[sequence.index]
        draft.text += WORDS[word].decode()
        for stop in self.ask.stops:
            if stop in draft.text[-len(stop) - 4 :]:
                sequence.stop_reason = stop
                return True
        return False

    # --- streams ---

    def _begin(self) -> None:
        if not self.begun:
            self.begun = True
            if self.watch is not None:
                self.watch(self, "first")

    def _opened(self, draft: Draft) -> None:
        if draft.sent == 0:
            draft.sent = 1
            opening = self.shape.opening(draft.choice.index, self._counts())
            if opening:
                self.connection.write(chunks(opening))

    def _careful(self, draft: Draft, words: list[int], reason: str | None) -> None:
        """An event with everything the client asked for."""
        draft.words += words
        choice = draft.choice
        choice.text = self._cut(draft, words, ended=reason is not None)
        choice.token_ids = [WORD_IDS[w] for w in words] if self.ask.token_ids else None
        choice.logprobs = scores(self.ask, words) if self.ask.logprobs is not None else None
        choice.tool = self.ask.tool if reason is not None else None
        usage = self._counts().openai() if self.ask.usage_each else None
        if self.ask.tool is not None:
            if reason is None:
                return
            choice.text = "".join(WORDS[w].decode() for w in draft.words)
        last = reason is not None
        data = self.shape.last(choice, self._params) if last else self.shape.delta(choice, usage)
        if data and (last or choice.text or choice.token_ids):
            self.connection.write(chunk(data))

    def _cut(self, draft: Draft, words: list[int], *, ended: bool) -> str:
        """Text that may go out: nothing that a stop string may still take back."""
        if not self.ask.stops:
            return "".join(WORDS[w].decode() for w in words)
        text = self._until_stop("".join(WORDS[w].decode() for w in draft.words))
        upto = len(text) if ended else max(draft.sent - 1, len(text) - max(map(len, self.ask.stops)))
        start, draft.sent = draft.sent - 1, upto + 1
        return text[start:upto]

    def _until_stop(self, text: str) -> str:
        for stop in self.ask.stops:
            text = text.split(stop, 1)[0]
        return text

    def _fail(self) -> None:
        self.connection.write(chunks(failure(self.ask.api, ERROR)))
        self.muted = True
        self._end()

    def fail_stream(self, said: Said) -> None:
        """An error in a stream that has begun, and its end."""
        self.connection.write(chunks(failure(self.ask.api, said)))
        self.muted = True
        self.connection.end_stream()

    def _end(self) -> None:
        self.connection.end_stream()
        if self.watch is not None:
            self.watch(self, "after")

    # --- whole answers ---

    def _whole(self) -> None:
        self._begin()
        if self.muted:
            return
        if self._failed:
            said = in_anthropics_words(ERROR) if self.ask.api == "messages" else ERROR
            self.connection.answer_json(500, said)
            return
        choices = [self._choice(d, s) for d, s in zip(self.drafts, self.sequences, strict=True)]
        self.connection.answer_json(200, self.shape.whole(choices, self._counts(), self._params))
        if self.watch is not None:
            self.watch(self, "after")

    def _choice(self, draft: Draft, sequence: Sequence) -> Choice:
        choice = draft.choice
        choice.text = self._until_stop("".join(WORDS[w].decode() for w in draft.words))
        if self.ask.echo:
            choice.text = detokenize(sequence.ids) + choice.text
        if self.ask.token_ids:
            choice.token_ids = [WORD_IDS[w] for w in draft.words]
            choice.prompt_ids = list(sequence.ids)
        if self.ask.logprobs is not None:
            choice.logprobs = scores(self.ask, draft.words)
        choice.tool = self.ask.tool
        return choice

    def _counts(self) -> Counts:
        first = self.sequences[0]
        cached = first.cached + first.external
        per_prompt = max(len(self.sequences) // max(self.ask.n, 1), 1)
        prompts = (
            sum(s.prompt for s in self.sequences) // max(self.ask.n, 1) if per_prompt > 1 else first.prompt
        )
        return Counts(prompts, self.out, cached if self._details else None)
