"""Bodies of generation requests: JSON -> what is asked, or the error vLLM would give. Knows no sequence and no wire."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from disaggc.simengine.conversations import Body, conversation, conversations
from disaggc.simengine.fields import wrong_field
from disaggc.simengine.options import Options
from disaggc.simengine.refusal import RefusedError
from disaggc.simengine.tokens import tokenize

MOST_CHOICES = 16384
"""vLLM's own default of VLLM_MAX_N_SEQUENCES."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A generation request."""

    api: str
    """completions, chat, responses, messages."""
    model: str
    prompts: tuple[array[int], ...]
    n: int
    max_tokens: int
    stream: bool
    usage: bool
    """A stream ends with the token counts."""
    usage_each: bool
    logprobs: int | None
    token_ids: bool
    echo: bool
    stops: tuple[str, ...]
    stop_ids: frozenset[int]
    ends_after: int | None
    distinct: bool
    tool: str | None
    """Name of the function the answer calls."""
    batch: bool = False
    """Each prompt is a conversation of its own."""
    params: Mapping[str, Any] = field(default_factory=dict)


def parse_body(raw: bytes) -> Body:
    """The JSON object of a body."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as exc:
        raise RefusedError(400, f"invalid JSON: {exc}", handled=False) from None
    if not isinstance(body, dict):
        raise RefusedError(400, "the body is not a JSON object", handled=False)
    return body


def read_ask(api: str, body: Body, options: Options) -> Ask:
    """What is asked; RefusedError as vLLM would."""
    check_fields(api, body)
    batch = api == "batch"
    stream = body.get("stream") is True and not batch
    if body.get("stream_options") and not stream:
        raise RefusedError(400, "Stream options can only be defined when `stream=True`.", handled=False)
    params = body.get("kv_transfer_params") or {}
    n = _choices(body, int(options.number("VLLM_MAX_N_SEQUENCES", MOST_CHOICES)))
    model = body.get("model") or options.served[0]
    if model not in options.served:
        raise RefusedError(404, f"The model `{model}` does not exist.", param="model")
    prompts = _prompts(api, body, params)
    api = "chat" if batch else api
    room = options.max_model_len - max(map(len, prompts))
    max_tokens = _max_tokens(api, body, limit=options.max_model_len, room=room)
    least = _integer(body, "min_tokens", 0, low=0)
    if least > max_tokens:
        raise RefusedError(
            400, f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {least}."
        )
    if (body.get("temperature") or 0) < 0:
        raise RefusedError(400, f"temperature must be non-negative, got {body['temperature']}.")
    said = body.get("stream_options") or {}
    usage = body.get("stream_options") is not None and said.get("include_usage", True)
    stop = body.get("stop") or body.get("stop_sequences") or ()
    if not all(stop):
        raise RefusedError(400, "stop cannot contain an empty string.", param="stop")
    ends = (body.get("vllm_xargs") or {}).get("sim_tokens")
    ends = int(ends) if ends is not None and not body.get("ignore_eos") else None
    return Ask(
        api=api,
        model=model,
        prompts=prompts,
        n=n,
        max_tokens=max_tokens,
        stream=stream,
        usage=bool(usage),
        usage_each=bool(said.get("continuous_usage_stats")),
        logprobs=_logprobs(api, body),
        token_ids=body.get("return_token_ids") is True,
        echo=body.get("echo") is True,
        stops=(stop,) if isinstance(stop, str) else tuple(stop),
        stop_ids=frozenset(body.get("stop_token_ids") or ()),
        ends_after=max(ends, least, 1) if ends is not None else None,
        distinct=bool(body.get("temperature", 1.0)),
        tool=None if batch else _tool(body),
        batch=batch,
        params=params,
    )


def check_fields(api: str, body: Body) -> None:
    """Refuse a body with a field of a wrong type."""
    wrong = wrong_field(api, body)
    if wrong is not None:
        raise RefusedError(400, wrong[1], param=wrong[0], handled=False)


def _integer(body: Body, name: str, default: int, *, low: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if value < low:
        raise RefusedError(400, f"{name} must be at least {low}, got {value}.", param=name)
    return int(value)


def _choices(body: Body, most: int) -> int:
    n = _integer(body, "n", 1, low=1)
    if n > most:
        raise RefusedError(400, f"n must be at most {most}, got {n}.", param="n")
    return n


def _max_tokens(api: str, body: Body, *, limit: int, room: int) -> int:
    if room < 1:
        raise RefusedError(
            400,
            f"This model's maximum context length is {limit} tokens. However, your request has {limit - room} input "
            "tokens. Please reduce the length of the input messages.",
            param="input_tokens",
        )
    names = {"chat": ("max_completion_tokens", "max_tokens"), "responses": ("max_output_tokens",)}
    for name in names.get(api, ("max_tokens",)):
        if body.get(name) is not None:
            wanted = _integer(body, name, 1, low=1)
            if wanted > room:
                raise RefusedError(
                    400,
                    f"'{name}' is too large: {wanted}. This model's maximum context length is {limit} tokens and your "
                    f"request has {limit - room} input tokens ({wanted} > {limit} - {limit - room}).",
                    param=name,
                )
            return wanted
    return min(16, room) if api == "completions" else room


def _prompts(api: str, body: Body, params: Mapping[str, Any]) -> tuple[array[int], ...]:
    if api == "completions":
        prompt = body.get("prompt")
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
            found = tuple(_one_prompt(p) for p in prompt)
        else:
            found = (_one_prompt(prompt),)
    elif api == "batch":
        found = tuple(map(tokenize, conversations(body)))
    else:
        given = params.get("prompt_token_ids")
        found = (
            _one_prompt(given) if api == "chat" and given is not None else tokenize(conversation(api, body)),
        )
    if not all(found):
        raise RefusedError(400, "The decoder prompt cannot be empty")
    return found


def _one_prompt(prompt: object) -> array[int]:
    if isinstance(prompt, str):
        return tokenize(prompt)
    try:
        if isinstance(prompt, list):
            ids = array("q", prompt)
            if ids and min(ids) < 0:
                raise RefusedError(400, f"Token id {min(ids)} is out of vocabulary", param="prompt")
            return ids
    except (TypeError, OverflowError):
        pass
    raise RefusedError(
        400, "prompt: Input should be a string or a list of token ids", param="prompt", handled=False
    )


def _logprobs(api: str, body: Body) -> int | None:
    if api == "chat":
        return _integer(body, "top_logprobs", 0, low=0) if body.get("logprobs") is True else None
    if api != "completions" or body.get("logprobs") is None:
        return None
    return _integer(body, "logprobs", 0, low=0)


def _tool(body: Body) -> str | None:
    """The function a request insists on; a mere offer of tools is not taken up."""
    choice, tools = body.get("tool_choice"), body.get("tools")
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if kind in ("required", "any"):
        return _name(tools[0]) if tools else None
    return _name(choice) if isinstance(choice, dict) and kind not in ("auto", "none") else None


def _name(tool: Mapping[str, Any]) -> str:
    """Of a function, whether the tool wraps it or is it."""
    inner = tool.get("function")
    return str((inner if isinstance(inner, dict) else tool).get("name"))
