"""The optional library of measured kernel times, asked for one replica's steps: `pip install disaggc[aiconfigurator]`.

The only place that imports it, and only when the spec asks. Answers a StepTable or the reason why there is none; never
lets the library reach a network. Knows no layout and no traffic.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from importlib import metadata, resources
from types import MappingProxyType
from typing import Any

from disaggc.catalog.facts import ModelFacts
from disaggc.catalog.model_config import read_model_config
from disaggc.ir.plan import Shape
from disaggc.perf.constants import Constants, Range
from disaggc.perf.estimate import Basis
from disaggc.perf.step_table import StepTable
from disaggc.resolve.model import NodeGroupFacts, ResolvedService

PACKAGE = "aiconfigurator-core"
_MODULE = "aiconfigurator_core"
_BACKEND = "vllm"
_CONFIG, _QUANTIZATION = "_config.json", "_hf_quant_config.json"

SYSTEMS = MappingProxyType(
    {
        "a100-80g": "a100_sxm",
        "h100-sxm": "h100_sxm",
        "h200": "h200_sxm",
        "b200": "b200_sxm",
        "b300": "b300_sxm",
        "gb200": "gb200",
        "gb300": "gb300",
        "l40s": "l40s",
        "rtx-pro-6000": "rtx_pro_6000_server",
    }
)
"""Accelerator id -> the library's name of the system it was measured on."""

_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_CONTEXTS = (512, 2048, 8192, 32768)
_PROMPTS = ((1, 256), (1, 1024), (1, 2048), (4, 2048), (1, 4096), (1, 8192), (1, 16384), (1, 32768))
_NAMES = frozenset(
    {"id", "source", "notes", "max_position", "multimodal", "tower_parameters", "mtp_layers", "dtype"}
)
"""Facts of a model that no step time hangs on."""

_STEP, _PROMPT = Range(0.5, 1.0, 1.25), Range(0.6, 1.0, 2.0)
"""Measured token times of vLLM over those of version 0.12.0, 10 % to 90 % of 103 published rows, wide expert
parallelism among them; prompts are only published with their queues, so that their range is the priors'."""
_SLOPE = Range(-0.14, 0.0, 0.14)
"""As the priors': what the tables add is the level, not how a step grows."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One replica in the library's words. drafts: speculative tokens; longest: context that may be reached."""

    model: str
    system: str
    shape: Shape
    kv_mode: str | None
    drafts: int
    longest: int


class Aiconfigurator:
    """The installed library. `Aiconfigurator.installed()` is None where there is none."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._known: dict[Ask, StepTable | str] = {}
        self._names: dict[object, str | None] = {}

    @classmethod
    @cache
    def installed(cls) -> Aiconfigurator | None:
        """Looks at the package's metadata only; nothing of it is imported yet. One for all that a command predicts."""
        try:
            return cls(metadata.version(PACKAGE))
        except metadata.PackageNotFoundError:
            return None

    @property
    def source(self) -> str:
        """How a number that rests on it is marked."""
        return f"aiconfigurator {self.version}"

    def unknown(self, service: ResolvedService, group: NodeGroupFacts) -> str | None:
        """Why it cannot answer for this model on this accelerator in any shape; None where it may."""
        if group.accelerator.id not in SYSTEMS:
            return f"has no measurements on {group.accelerator.id}"
        if self._model(service.model) is None:
            return f"does not know the model {service.model.id}"
        if any("quantization" in given for given in service.settings.values()):
            return "cannot tell which kernels `quantization` in the settings leads to"
        if _kv_mode(service) == "":
            return f"has no measurements with `kv-cache-dtype: {service.kv_dtype}`"
        return None

    def table(self, service: ResolvedService, group: NodeGroupFacts, shape: Shape) -> StepTable | str:
        """Step times of one replica, or why there are none."""
        why = self.unknown(service, group)
        name = self._model(service.model)
        if why is not None or name is None:
            return why or ""
        ask = Ask(
            name, SYSTEMS[group.accelerator.id], shape, _kv_mode(service),
            service.given.speculative.tokens if service.given.speculative else 0, service.max_model_len,
        )  # fmt: skip
        if ask not in self._known:
            self._known[ask] = self._asked(ask)
        return self._known[ask]

    def _asked(self, ask: Ask) -> StepTable | str:
        shape = ask.shape
        if shape.pp > 1:
            return "counts a pipeline's steps otherwise"
        if shape.dcp > 1:
            return "has no measurements of KV that ranks share by dcp"
        logging.getLogger(_MODULE).setLevel(logging.ERROR)
        from aiconfigurator_core.sdk import EngineHandle  # noqa: PLC0415 - optional, and half a second to load

        try:
            engine = EngineHandle.compile(
                ask.model, ask.system, _BACKEND,
                tp_size=shape.tp, attention_dp_size=shape.dp,
                moe_tp_size=shape.tp * shape.dp // shape.ep, moe_ep_size=shape.ep,
                kvcache_quant_mode=ask.kv_mode, nextn=ask.drafts,
            )  # fmt: skip
            return self._measured(engine, ask.longest)
        except Exception as problem:  # noqa: BLE001 - the library raises its own, built-in and native errors alike
            return f"has no table: {' '.join(str(problem).split())[:160]}"

    def _measured(self, engine: Any, longest: int) -> StepTable | str:
        """Every point of the grid that the engine may reach; the library counts batches of one rank, milliseconds."""
        contexts = [c for c in _CONTEXTS if c <= longest] or [longest]
        decode = {
            (batch, context): engine.predict_decode_latency(batch, context) / 1000
            for batch in _BATCHES
            for context in contexts
        }
        prefill = {
            (count, tokens): engine.predict_prefill_latency(count, tokens) / 1000
            for count, tokens in _PROMPTS
            if tokens <= max(longest, 2048)
        }
        if engine.last_provenance() is not None:
            return f"has no table: it estimates ({engine.last_provenance()})"
        return StepTable.of(decode, prefill, source=self.source)

    def _model(self, model: ModelFacts) -> str | None:
        """Its own name of a model with the same weights and caches; it would fetch any other from a hub."""
        key = (model.id, _sizes(model))
        if key not in self._names:
            bundled = self._bundled
            order = sorted(bundled, key=lambda name: (name != model.id, name))
            self._names[key] = next((n for n in order if self._same(n, bundled[n], model)), None)
        return self._names[key]

    @cached_property
    def _bundled(self) -> dict[str, str | None]:
        """Model id -> its config.json; None where a second file says how it is quantised."""
        files = {f.name: f for f in (resources.files(_MODULE) / "model_configs").iterdir()}
        stems = [
            n.removesuffix(_CONFIG) for n in files if n.endswith(_CONFIG) and not n.endswith(_QUANTIZATION)
        ]
        return {
            stem.replace("--", "/", 1): None
            if f"{stem}{_QUANTIZATION}" in files
            else files[f"{stem}{_CONFIG}"].read_text("utf-8")
            for stem in stems
        }

    @staticmethod
    def _same(name: str, config: str | None, model: ModelFacts) -> bool:
        """Whether a bundled model is this one; the width is looked at first, for reading a config takes long."""
        if config is None:
            return name == model.id
        if re.search(rf'"hidden_size"\s*:\s*{model.hidden}\b', config) is None:
            return False
        facts = read_model_config(config, name).value
        return facts is not None and _sizes(facts) == _sizes(model)


def informed(prior: Constants, source: str) -> Constants:
    """The constants beside a table: what is in doubt of it is a factor on every step."""
    return replace(
        prior, step_miss=_STEP, prompt_miss=_PROMPT, batch_slope=_SLOPE, basis=Basis.TABLES, source=source
    )


def _sizes(model: ModelFacts) -> tuple[object, ...]:
    return tuple(getattr(model, field.name) for field in fields(model) if field.name not in _NAMES)


def _kv_mode(service: ResolvedService) -> str | None:
    """The library's name of the KV cache's precision; None: the model's own, "": none of its names."""
    kind = service.kv_dtype if service.kv_dtype != "auto" else service.model.kv_cache_dtype
    if kind == "auto":
        return None
    if kind in {"bfloat16", "float16"}:
        return "bfloat16"
    return "fp8" if kind in {"fp8", "fp8_e4m3", "fp8_e5m2"} else ""
