"""Checks before admission: model name, state that only one engine has, and prompt length against the limit.

A request that decode would refuse after prefill has run strands KV, so it is refused here where that is certain.
"""

from __future__ import annotations

from typing import Final

import msgspec

from disaggc.proxy.answers import Answer
from disaggc.proxy.asks import Ask
from disaggc.proxy.board import Total
from disaggc.proxy.engine_json import Counted
from disaggc.proxy.failures import RefusedError
from disaggc.proxy.service import Service
from disaggc.routing.length import LengthVerdict

TOKENIZE_S: Final = 5.0
_FITS: Final = LengthVerdict.FITS


def check_model(service: Service, ask: Ask) -> None:
    """RefusedError for a model that is not served, and for state that lives on one engine of several."""
    if ask.model is not None and ask.model not in service.bounds.models:
        raise RefusedError(404, f"the model `{ask.model[:200]}` is not served here")
    if ask.stateful and len(service.fleet.servers) > 1:
        raise RefusedError(
            400, "`previous_response_id` and `background` need one engine, this service has several"
        )


def prompt_length(service: Service, ask: Ask) -> float | None:
    """Prompt tokens, exact or expected, None where only an engine can tell whether prompt and wanted output fit.

    RefusedError 400 when they cannot.
    """
    limit = service.bounds.max_model_len
    if ask.prompt_tokens is not None:
        if ask.single:
            check_length(service, ask, ask.prompt_tokens)
        return ask.prompt_tokens
    expected = service.lengths.tokens(ask.prompt_bytes)
    if not ask.countable or not ask.single:
        return min(expected, limit)
    verdict = service.lengths.verdict(ask.prompt_bytes, limit - (ask.output_limit or 1))
    if verdict is _FITS:
        return expected
    if verdict is LengthVerdict.TOO_LONG:
        raise _too_long(service, ask, f"about {max(1, round(expected))}")
    return None if ask.tokenizable else expected


def check_length(service: Service, ask: Ask, tokens: int) -> None:
    """RefusedError 400 when so many tokens and the wanted output do not fit."""
    if tokens > service.table.max_model_len - (ask.output_limit or 1):
        raise _too_long(service, ask, str(tokens))


def _too_long(service: Service, ask: Ask, tokens: str) -> RefusedError:
    service.tally.cells[Total.REFUSED_LENGTH] += 1
    limit = service.table.max_model_len
    wanted = ask.output_limit or 1
    return RefusedError(
        400, f"the prompt has {tokens} tokens and {wanted} are wanted, the model's context is {limit}"
    )


def counted(answer: Answer) -> int | None:
    """The engine's own count of a prompt; None when it gave none, then the engine decides."""
    if answer.head.status != 200:
        return None
    try:
        return msgspec.json.decode(answer.body, type=Counted).count
    except msgspec.DecodeError:
        return None
