"""The endpoints that generate nothing: models, tokenize, detokenize, embeddings."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

from disaggc.simengine.asks import check_fields
from disaggc.simengine.conversations import conversation
from disaggc.simengine.options import Options
from disaggc.simengine.tokens import detokenize, tokenize

Said = dict[str, Any]


def models(options: Options, created: int) -> Said:
    """/v1/models."""
    return {
        "object": "list",
        "data": [
            {
                "id": name, "object": "model", "created": created, "owned_by": "vllm", "root": options.model,
                "parent": None, "max_model_len": options.max_model_len, "permission": [],
            }
            for name in options.served
        ],
    }  # fmt: skip


def tokenized(body: Said, options: Options) -> Said:
    """/tokenize of a prompt or of messages."""
    check_fields("tokenize", body)
    text = body["prompt"] if body.get("prompt") is not None else conversation("chat", body)
    ids = list(tokenize(text))
    return {"count": len(ids), "max_model_len": options.max_model_len, "tokens": ids, "token_strs": None}


def detokenized(body: Said, _options: Options) -> Said:
    """/detokenize."""
    check_fields("detokenize", body)
    return {"prompt": detokenize(body["tokens"])}


def embedded(body: Said, options: Options) -> Said:
    """/v1/embeddings: numbers that depend on the text and mean nothing."""
    check_fields("embeddings", body)
    given = body["input"]
    inputs = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
    rows = [{"index": i, "object": "embedding", "embedding": _vector(one)} for i, one in enumerate(inputs)]
    count = sum(len(tokenize(one) if isinstance(one, str) else one) for one in inputs)
    usage = {
        "prompt_tokens": count,
        "total_tokens": count,
        "completion_tokens": 0,
        "prompt_tokens_details": None,
    }
    return {"id": "embd-0", "object": "list", "model": options.served[0], "data": rows, "usage": usage}


def _vector(given: object) -> list[float]:
    return [byte / 255 for byte in blake2b(json.dumps(given).encode(), digest_size=16).digest()]


SMALL = {"/tokenize": tokenized, "/detokenize": detokenized, "/v1/embeddings": embedded}
"""Path -> what answers a POST."""
