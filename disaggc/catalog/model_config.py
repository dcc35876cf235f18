"""Any Hugging Face config.json -> ModelFacts, or what keeps it from being sized.

The only way into the catalog for models, ours included. Finds the language model in the file; `decoder` sizes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from disaggc.catalog.config_keys import CODE, Keys, parse_object
from disaggc.catalog.decoder import decoder_facts
from disaggc.catalog.facts import ModelFacts
from disaggc.catalog.families import ENCODERS, UNSIZED
from disaggc.catalog.model_summary import Wrapping
from disaggc.catalog.omissions import nested_defaults, spread_blocks
from disaggc.catalog.towers import TOWERS, is_multimodal, tower_parameters
from disaggc.diagnostics import Diagnostic, Outcome, error

_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "language_model_config")
_DEEPEST = 4
_OUTER_NAMES = ("architectures",)
"""Keys that say what the whole model is; the outer object's win."""


def read_model_config(text: str, source: str, model_id: str | None = None) -> Outcome[ModelFacts]:
    """The facts of a config.json. `source` names it in messages; DGC203 says what is missing or impossible."""
    raw, problems = parse_object(text, source)
    if raw is None:
        return Outcome(None, tuple(problems))
    return model_from_mapping(raw, source, model_id)


def model_from_mapping(
    raw: Mapping[str, Any], source: str, model_id: str | None = None
) -> Outcome[ModelFacts]:
    """As `read_model_config`, from the parsed object."""
    refusal = _refusal(raw)
    if refusal is not None:
        return Outcome(None, (error(CODE, f"`{source}`: {refusal}"),))
    problems: list[Diagnostic] = []
    keys = Keys(spread_blocks(_text_part(raw, _DEEPEST)), source, problems)
    wrapping = Wrapping(
        model_id or source, multimodal=is_multimodal(raw), tower_parameters=tower_parameters(raw, source)
    )
    facts = decoder_facts(keys, wrapping)
    return Outcome(None if problems else facts, tuple(problems))


def _refusal(raw: Mapping[str, Any]) -> str | None:
    if raw.get("is_encoder_decoder") is True:
        return "an encoder-decoder model; its cross-attention cache cannot be handed from prefill to decode"
    if "_class_name" in raw or "_diffusers_version" in raw:
        return "a diffusers pipeline, not a language model"
    model_type = raw.get("model_type")
    if isinstance(model_type, str) and model_type in ENCODERS:
        return f"`model_type` is `{model_type}`, which is not a decoder-only language model"
    if isinstance(model_type, str) and model_type in UNSIZED:
        return f"`model_type` is `{model_type}`, whose cache disaggc cannot size"
    return None


def _text_part(raw: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
    """The language model's keys: a nested text part wins, the outer object gives what it leaves out."""
    for name in _TEXT_PARTS:
        inner = raw.get(name)
        if isinstance(inner, dict) and depth > 0:
            outer = {k: v for k, v in raw.items() if k not in _TEXT_PARTS and k not in TOWERS}
            given = {k: v for k, v in inner.items() if v is not None and k not in _OUTER_NAMES}
            return _text_part({**nested_defaults(inner), **given, **_named_outside(outer, given)}, depth - 1)
    return raw


def _named_outside(outer: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the outer object adds to a nested part: everything that the part itself leaves out."""
    return {k: v for k, v in outer.items() if k not in given}
