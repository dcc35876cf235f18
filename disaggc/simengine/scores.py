"""Log probabilities in the shape the APIs give them; the figures mean nothing."""

from __future__ import annotations

from typing import Any

from disaggc.simengine.asks import Ask
from disaggc.simengine.tokens import WORDS

Said = dict[str, Any]
_TAKEN = -0.1


def scores(ask: Ask, words: list[int]) -> Said:
    """The word that was taken, and as many others as were asked for, each less likely."""
    more = ask.logprobs or 0
    texts = [_text(word) for word in words]
    tops = [
        [(text, _TAKEN), *((_text(word + i), -2.0 - i) for i in range(1, more))]
        for word, text in zip(words, texts, strict=True)
    ]
    if ask.api == "chat":
        content = [
            {**_scored(text, _TAKEN), "top_logprobs": [_scored(*pair) for pair in top[:more]]}
            for text, top in zip(texts, tops, strict=True)
        ]
        return {"content": content}
    return {
        "text_offset": [4 * i for i in range(len(texts))],
        "token_logprobs": [_TAKEN] * len(texts),
        "tokens": texts,
        "top_logprobs": [dict(top) for top in tops],
    }


def _text(word: int) -> str:
    return WORDS[word % len(WORDS)].decode()


def _scored(text: str, logprob: float) -> Said:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}
