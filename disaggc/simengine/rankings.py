"""The endpoints of pooling models: score, rerank, classify, pooling, Cohere's embed.

The forms are vLLM's (entrypoints/pooling). The figures depend on the texts and mean nothing.
"""

from __future__ import annotations

import json
import time
from hashlib import blake2b
from typing import Any

from disaggc.simengine.asks import check_fields
from disaggc.simengine.conversations import conversation
from disaggc.simengine.options import Options
from disaggc.simengine.refusal import RefusedError
from disaggc.simengine.tokens import tokenize

Said = dict[str, Any]
_PAIRS = (("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2"))


def vector(given: object) -> list[float]:
    """Sixteen numbers from 0 to 1."""
    return [byte / 255 for byte in blake2b(json.dumps(given).encode(), digest_size=16).digest()]


def counted(texts: list[Any]) -> int:
    """Tokens of texts, of lists of token ids, or of parts of messages."""
    return sum(len(one) if _is_ids(one) else len(tokenize(_text(one))) for one in texts)


def used(tokens: int) -> Said:
    """The token counts of an answer that generates nothing."""
    return {
        "prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": None,
    }  # fmt: skip


def inputs_of(body: Said) -> list[Any]:
    """One entry for each text, list of token ids, or conversation."""
    if body.get("input") is None:
        return [conversation("chat", body)]
    given = body["input"]
    return given if isinstance(given, list) and not isinstance(given[0], int) else [given]


def _is_ids(one: object) -> bool:
    return isinstance(one, list) and all(isinstance(part, int) for part in one)


def _text(one: object) -> str:
    return one if isinstance(one, str) else json.dumps(one)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _model(body: Said, options: Options) -> str:
    model = body.get("model") or options.served[0]
    if model not in options.served:
        raise RefusedError(404, f"The model `{model}` does not exist.", param="model")
    return str(model)


def scored(body: Said, options: Options) -> Said:
    """/score: each text of one side with each of the other, or one by one."""
    check_fields("score", body)
    names = next((pair for pair in _PAIRS if all(body.get(name) is not None for name in pair)), None)
    if names is None:
        raise RefusedError(400, "queries: Field required", param="queries", handled=False)
    first, second = (_listed(body[name]) for name in names)
    if len(first) == 1:
        first = first * len(second)
    if len(first) != len(second) or not first:
        raise RefusedError(400, "Input lengths must be either 1:1, 1:N or N:N")
    pairs = list(zip(first, second, strict=True))
    rows = [{"index": i, "object": "score", "score": vector(pair)[0]} for i, pair in enumerate(pairs)]
    usage = used(counted([*first, *second]))
    model = _model(body, options)
    return {
        "id": "score-0", "object": "list", "created": int(time.time()), "model": model, "data": rows, "usage": usage,
    }  # fmt: skip


def reranked(body: Said, options: Options) -> Said:
    """/rerank: the documents in the order of their relevance, the first `top_n` of them."""
    check_fields("rerank", body)
    query, documents = body["query"], _listed(body["documents"])
    top = body.get("top_n") or 0
    if top < 0 or not documents:
        raise RefusedError(
            400, "top_n: Input should be greater than or equal to 0", param="top_n", handled=False
        )
    rows: list[Said] = [
        {
            "index": i,
            "document": {
                "text": one if isinstance(one, str) else None,
                "multi_modal": one.get("content", []) if isinstance(one, dict) else None,
            },
            "relevance_score": vector((query, one))[0],
        }
        for i, one in enumerate(documents)
    ]
    rows.sort(key=lambda row: row["relevance_score"], reverse=True)
    tokens = counted([query] * len(documents) + documents)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"id": "rerank-0", "model": _model(body, options), "usage": usage, "results": rows[: top or None]}


def classified(body: Said, options: Options) -> Said:
    """/classify: two classes."""
    check_fields("pooling", body)
    inputs = inputs_of(body)
    rows = []
    for i, share in enumerate(vector(one)[0] for one in inputs):
        probs = [share, 1 - share]
        label = f"LABEL_{int(share < 0.5)}"
        rows.append({"index": i, "label": label, "probs": probs, "num_classes": 2})
    return _listing("classify-0", rows, inputs, model=_model(body, options))


def pooled(body: Said, options: Options) -> Said:
    """/pooling: a vector of each input."""
    check_fields("pooling", body)
    inputs = inputs_of(body)
    rows = [{"index": i, "object": "pooling", "data": vector(one)} for i, one in enumerate(inputs)]
    return _listing("pool-0", rows, inputs, model=_model(body, options))


def _listing(name: str, rows: list[Said], inputs: list[Any], *, model: str) -> Said:
    return {
        "id": name, "object": "list", "created": int(time.time()), "model": model, "data": rows,
        "usage": used(counted(inputs)),
    }  # fmt: skip


def embedded_as_cohere(body: Said, options: Options) -> Said:
    """/v2/embed of texts or of mixed inputs; `float` is the one type of numbers the double gives."""
    check_fields("embed", body)
    given = [name for name in ("texts", "images", "inputs") if body.get(name)]
    if len(given) != 1:
        raise RefusedError(
            400, "Exactly one non-empty texts, images, or inputs field must be provided", handled=False
        )
    _model(body, options)
    inputs = body[given[0]]
    return {
        "id": "embd-0",
        "embeddings": {
            "float": [vector(one) for one in inputs], "binary": None, "ubinary": None, "base64": None,
        },
        "texts": body.get("texts"),
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"input_tokens": counted(inputs), "image_tokens": None},
        },
        "response_type": "embeddings_by_type",
    }  # fmt: skip
