"""`disaggc.catalog-model/v1` and `disaggc.catalog-models/v1`: what `disaggc catalog models --format json` prints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from disaggc.catalog.facts import LayerKind, ModelFacts
from disaggc.cli.views.document import Document, Item


class ModelItem(Item):
    """A model as its config.json describes it."""

    id: str
    architecture: str
    parameters: int
    active_parameters: int
    """Parameters one token uses."""
    weight_bytes: int
    kv_bytes_per_token: int
    """Whole model, full-length and sliding-window layers both, at the model's own KV type."""
    attention: Literal["gqa", "mla", "hybrid"]
    layers: int
    layer_kinds: dict[str, int]
    """Decoder layers by what they keep per token: full, sliding, linear."""
    sliding_window: int
    """Tokens; 0 = none."""
    state_bytes_per_sequence: int
    """Recurrent state of linear layers."""
    experts: int
    experts_per_token: int
    quantization: str
    max_position: int
    multimodal: bool
    source: str
    notes: tuple[str, ...]


class ModelDocument(Document, ModelItem):
    """Output of `disaggc catalog models ID --format json`."""

    schema_: Annotated[Literal["disaggc.catalog-model/v1"], Field(alias="schema")] = (
        "disaggc.catalog-model/v1"
    )


class ModelsDocument(Document):
    """Output of `disaggc catalog models --format json`."""

    schema_: Annotated[Literal["disaggc.catalog-models/v1"], Field(alias="schema")] = (
        "disaggc.catalog-models/v1"
    )
    models: tuple[ModelItem, ...]


def models(facts: tuple[ModelFacts, ...]) -> ModelsDocument:
    """Every model."""
    return ModelsDocument(models=tuple(_item(fact) for fact in facts))


def model(fact: ModelFacts) -> ModelDocument:
    """One model, its keys at the top."""
    return ModelDocument.model_validate(_item(fact).model_dump())


def kv_bytes_per_token(fact: ModelFacts) -> float:
    """Bytes of K and V one token adds in the whole model while it is inside every window, at the model's own type."""
    return fact.kv_bytes_per_token


def _item(fact: ModelFacts) -> ModelItem:
    return ModelItem(
        id=fact.id,
        architecture=fact.architecture,
        parameters=fact.parameters,
        active_parameters=fact.active_parameters,
        weight_bytes=round(fact.weight_bytes),
        kv_bytes_per_token=round(kv_bytes_per_token(fact)),
        attention=fact.attention.value,
        layers=len(fact.layers),
        layer_kinds={kind.value: n for kind in LayerKind if (n := fact.layers.count(kind))},
        sliding_window=fact.sliding_window,
        state_bytes_per_sequence=fact.state_bytes_per_sequence,
        experts=fact.experts,
        experts_per_token=fact.experts_per_token,
        quantization=fact.quantization,
        max_position=fact.max_position,
        multimodal=fact.multimodal,
        source=fact.source,
        notes=fact.notes,
    )
