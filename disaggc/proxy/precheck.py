"""Checks before admission: model name, state that only one engine has, and prompt length against the limit.

A request that decode would refuse after prefill has run strands KV, so it is refused here where that is certain.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from disaggc.proxy.asks import Api, Ask
from disaggc.proxy.board import Total
from disaggc.proxy.failures import LegError, RefusedError, Stage
from disaggc.proxy.legs import Message, send
from disaggc.proxy.requests import engine_head, forwarded
from disaggc.proxy.service import Service
from disaggc.routing.length import LengthVerdict

if TYPE_CHECKING:
    from disaggc.proxy.exchange import Exchange

TOKENIZE_S = 5.0


def check_model(service: Service, ask: Ask) -> None:
    """RefusedError for a model that is not served, and for state that lives on one engine of several."""
    if ask.model is not None and ask.model not in service.table.models:
        raise RefusedError(404, f"the model `{ask.model[:200]}` is not served here")
    if ask.stateful and len(service.fleet.servers) > 1:
        raise RefusedError(
            400, "`previous_response_id` and `background` need one engine, this service has several"
        )


async def check_length(x: Exchange, ask: Ask) -> float:
    """Prompt tokens, exact or expected; RefusedError 400 when prompt and wanted output cannot fit."""
    service = x.service
    limit = service.table.max_model_len
    room = limit - (ask.output_limit or 1)
    if ask.prompt_tokens is not None:
        if ask.single and ask.prompt_tokens > room:
            raise _too_long(service, ask.prompt_tokens, ask)
        return ask.prompt_tokens
    expected = service.lengths.tokens(ask.prompt_bytes)
    if not ask.countable or not ask.single:
        return min(expected, limit)
    match service.lengths.verdict(ask.prompt_bytes, room):
        case LengthVerdict.TOO_LONG:
            raise _too_long(service, round(service.lengths.at_least(ask.prompt_bytes)), ask)
        case LengthVerdict.ASK:
            exact = await _tokenize(x, ask)
            if exact is not None and exact > room:
                raise _too_long(service, exact, ask)
            return exact or expected
        case LengthVerdict.FITS:
            return expected


def _too_long(service: Service, tokens: int, ask: Ask) -> RefusedError:
    service.tally.cells[Total.REFUSED_LENGTH] += 1
    limit = service.table.max_model_len
    wanted = ask.output_limit or 1
    return RefusedError(
        400, f"the prompt has {tokens} tokens and {wanted} are wanted, the model's context is {limit}"
    )


_TOKENIZED = {
    Api.CHAT: frozenset({"model", "messages", "tools", "chat_template_kwargs"}),
    Api.COMPLETIONS: frozenset({"model", "prompt"}),
}


async def _tokenize(x: Exchange, ask: Ask) -> int | None:
    """The engine's own count; None when it cannot be had, then the engine decides."""
    keep = _TOKENIZED.get(ask.api)
    replica = x.service.fleet.any_engine(x.clock())
    if keep is None or replica is None:
        return None
    x.service.tally.cells[Total.TOKENIZE_CALLS] += 1
    parts = [ask.body[m.start : m.end] for m in ask.found if m.key in keep]
    body = b"{" + b",".join(parts) + b"}"
    head = engine_head(
        b"POST",
        b"/tokenize",
        replica.authority,
        lines=forwarded(x.request.headers),
        request=x.upstream_id,
        size=len(body),
    )
    try:
        _, future = await send(
            replica,
            Message(head, [body], stream=False),
            x.connections,
            connect_s=x.service.table.timeouts.connect_s,
        )
        answer = await x.within(Stage.QUEUE, TOKENIZE_S, future)
        count = json.loads(answer.body).get("count") if answer.head.status == 200 else None
    except (LegError, ValueError, AttributeError):
        return None
    return count if isinstance(count, int) else None
