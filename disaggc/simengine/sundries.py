"""The endpoints that generate nothing: models, tokenize, detokenize, embeddings, tokens of a message."""

from __future__ import annotations

from typing import Any

from disaggc.simengine.asks import check_fields
from disaggc.simengine.conversations import conversation
from disaggc.simengine.options import Options
from disaggc.simengine.rankings import (
    classified,
    counted,
    embedded_as_cohere,
    inputs_of,
    pooled,
    reranked,
    scored,
    used,
    vector,
)
from disaggc.simengine.refusal import RefusedError
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
    inputs = inputs_of(body)
    rows = [{"index": i, "object": "embedding", "embedding": vector(one)} for i, one in enumerate(inputs)]
    usage = used(counted(inputs))
    return {"id": "embd-0", "object": "list", "model": options.served[0], "data": rows, "usage": usage}


def counted_message(body: Said, options: Options) -> Said:
    """/v1/messages/count_tokens."""
    check_fields("count_tokens", body)
    if body["model"] not in options.served:
        raise RefusedError(404, f"The model `{body['model']}` does not exist.", param="model")
    tokens = len(tokenize(conversation("messages", body)))
    return {"input_tokens": tokens, "context_management": {"original_input_tokens": tokens}}


SMALL = {
    "/tokenize": tokenized, "/detokenize": detokenized, "/v1/embeddings": embedded, "/v2/embed": embedded_as_cohere,
    "/score": scored, "/v1/score": scored, "/rerank": reranked, "/v1/rerank": reranked, "/v2/rerank": reranked,
    "/classify": classified, "/pooling": pooled, "/v1/messages/count_tokens": counted_message,
}  # fmt: skip
"""Path -> what answers a POST."""
