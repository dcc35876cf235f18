"""Which parts of a model a checkpoint quantises, and the bytes a parameter takes with its scales.

Reads `quantization_config`; knows module names only as texts that its ignore lists match.
"""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.catalog.config_keys import Keys
from disaggc.catalog.facts import Precision
from disaggc.catalog.module_names import NO_MODULES, ModuleSet

_PLAIN_PARTS = frozenset({"router", "norm", "embedding", "state"})
"""Parts that quantisation tools leave alone whatever they are told: they are small or not linear layers."""
_FLOAT_4_BLOCK = 16
_DEEPSEEK_EXPERTS = ModuleSet(("*.mlp.experts.*",))
_KNOWN = "awq, bitsandbytes, compressed-tensors, fbgemm_fp8, fp8, gptq, modelopt, mxfp4, quark, auto-round, torchao"


@dataclass(frozen=True, slots=True)
class Format:
    """One way to store a weight: bytes_each with scales; compute is the precision of its matrix products."""

    scheme: str
    bytes_each: float
    compute: Precision


@dataclass(frozen=True, slots=True)
class Quantisation:
    """A checkpoint's precision by module. groups: the first whose targets match wins; none = stays plain."""

    plain: Format
    groups: tuple[tuple[ModuleSet, Format], ...] = ()
    ignored: ModuleSet = NO_MODULES
    only_experts: bool = False
    kv_dtype: str = "auto"

    def of(self, part: str, modules: tuple[str, ...]) -> Format:
        """The format of a part of the model; `modules` are the names its layers may go by in ignore lists."""
        if part in _PLAIN_PARTS or (self.only_experts and part != "routed_experts"):
            return self.plain
        if part == "head" and not any(targets.names_head for targets, _ in self.groups):
            return self.plain
        if self.ignored.matches(modules):
            return self.plain
        return next(
            (form for targets, form in self.groups if targets.everything or targets.matches(modules)),
            self.plain,
        )


def read_quantisation(keys: Keys, plain: Format) -> Quantisation:
    """The quantisation of a config; absent = none. An unknown method is DGC203: its bytes cannot be known."""
    section = keys.section("quantization_config") or keys.section("compression_config")
    if section is None:
        return Quantisation(plain)
    method = section.text("quant_method", default="").lower().replace("_", "-")
    ignored = _ignored(section)
    cache = _cache_dtype(section)
    if method == "compressed-tensors" or (method in {"", "modelopt"} and section.has("config_groups")):
        return Quantisation(plain, _compressed(section, plain), ignored, kv_dtype=cache)
    if method == "quark":
        return Quantisation(plain, _quark(section, plain), ignored, kv_dtype=cache)
    form = _single(section, method, plain)
    if form is None:
        keys.refuse(f"`quantization_config.quant_method` is `{method[:40]}`, known are {_KNOWN}")
        return Quantisation(plain)
    if keys.text("model_type") == "deepseek_v4" and keys.text("expert_dtype", default="fp4") == "fp4":
        experts = Format("mxfp4", 0.5 + 1 / 32, "fp8")
        return Quantisation(
            plain, ((_DEEPSEEK_EXPERTS, experts), (ModuleSet.all(), form)), ignored, kv_dtype=cache
        )
    experts_only = method in {"mxfp4", "gpt-oss-mxfp4"}
    return Quantisation(plain, ((ModuleSet.all(), form),), ignored, only_experts=experts_only, kv_dtype=cache)


def _ignored(section: Keys) -> ModuleSet:
    names: list[str] = []
    for key in (
        "modules_to_not_convert",
        "ignored_layers",
        "ignore",
        "exclude_modules",
        "exclude",
        "llm_int8_skip_modules",
    ):
        names += section.texts(key)
    dynamic = section.section("dynamic")
    names += [f"re:{name[2:]}" for name in dynamic.raw if name.startswith("-:")] if dynamic else []
    return ModuleSet(tuple(names))


def _cache_dtype(section: Keys) -> str:
    """What `--kv-cache-dtype auto` becomes: fp8 where the checkpoint declares an 8-bit float cache."""
    scheme = section.raw.get("kv_cache_scheme")
    declared = isinstance(scheme, dict) and scheme.get("num_bits") == 8 and scheme.get("type") == "float"
    named = str(section.raw.get("kv_cache_quant_algo") or "").upper() == "FP8"
    return "fp8" if declared or named else "auto"


def _single(section: Keys, method: str, plain: Format) -> Format | None:  # noqa: PLR0911 - one row for each method
    """Methods that store every quantised module alike."""
    bits = section.integer("bits", "w_bit", low=1, high=16, default=4)
    group = section.raw.get("group_size", section.raw.get("q_group_size", 128))
    size = group if isinstance(group, int) and not isinstance(group, bool) and 0 < group < 1_000_000 else 0
    match method:
        case "fp8":
            return _fp8(section.integers("weight_block_size"))
        case "fbgemm-fp8" | "ptpc-fp8":
            return _fp8(())
        case "mxfp4" | "gpt-oss-mxfp4":
            return Format("mxfp4", 0.5 + 1 / 32, plain.compute)
        case "awq" | "awq-marlin" | "gptq" | "gptq-marlin" | "auto-round" | "auto-gptq" | "intel/auto-round":
            zero_points = bits / 8 if method.startswith("awq") or section.raw.get("sym") is False else 0.0
            return Format(f"int{bits}", bits / 8 + ((2 + zero_points) / size if size else 0.0), plain.compute)
        case "bitsandbytes":
            return _bitsandbytes(section, plain)
        case "modelopt" | "modelopt-fp4" | "modelopt-mxfp8":
            return _modelopt(section, plain, size)
        case "torchao":
            return Format("int8", 1.0, plain.compute)
        case _:
            return None


def _fp8(block: tuple[int, ...]) -> Format:
    scale = 4 / (block[0] * block[1]) if len(block) == 2 and min(block) > 0 else 0.0
    return Format("fp8", 1 + scale, "fp8")


def _bitsandbytes(section: Keys, plain: Format) -> Format:
    if section.flag("load_in_4bit", "_load_in_4bit", default=False):
        double = section.flag("bnb_4bit_use_double_quant", default=False)
        return Format("int4", 0.5 + (1 / 64 if double else 4 / 64), plain.compute)
    return Format("int8", 1.0, plain.compute)


def _modelopt(section: Keys, plain: Format, group: int) -> Format | None:
    inner = section.section("quantization") or section
    algorithm = inner.text("quant_algo", default="FP8").upper()
    if algorithm in {"NVFP4", "NVFP4_AWQ", "W4A16_NVFP4", "NVFP4_FP8_MHA"}:
        return Format("nvfp4", 0.5 + 1 / _FLOAT_4_BLOCK, plain.compute if "A16" in algorithm else "fp4")
    if algorithm == "MXFP8":
        return Format("fp8", 1 + 1 / 32, "fp8")
    if algorithm.startswith("FP8"):
        return _fp8((128, 128) if "PB" in algorithm else ())
    if algorithm in {"W4A16_AWQ", "W4A8_AWQ", "INT4_AWQ"}:
        return Format("int4", 0.5 + 2 / (group or 128), plain.compute)
    return None


def _compressed(section: Keys, plain: Format) -> tuple[tuple[ModuleSet, Format], ...]:
    groups = section.section("config_groups")
    found = []
    for name in groups.raw if groups else ():
        group = groups.section(name) if groups else None
        weights = group.section("weights") if group else None
        if group is None or weights is None:
            continue
        targets = group.texts("targets") or ("Linear",)
        found.append(
            (ModuleSet.targets(targets), _stored(weights, group.section("input_activations"), plain))
        )
    if not found:
        section.refuse(
            "`quantization_config.config_groups` holds no group with `weights`, so its bytes cannot be known"
        )
    found.sort(key=lambda pair: pair[0].everything)
    return tuple(found)


def _stored(weights: Keys, activations: Keys | None, plain: Format) -> Format:
    """A compressed-tensors weight scheme: bits, float or int, and scales by group, block or channel."""
    bits = weights.integer("num_bits", low=1, high=16, default=8)
    kind = weights.text("type", default="int")
    group = weights.integer("group_size", low=-1, high=1_000_000, default=0)
    block = weights.integers("block_structure")
    act_bits = activations.integer("num_bits", low=1, high=16, default=16) if activations else 16
    if kind == "float" and bits == 4:
        narrow = group == 32
        compute: Precision = "fp4" if act_bits == 4 else "fp8" if act_bits == 8 else plain.compute
        return Format("mxfp4" if narrow else "nvfp4", 0.5 + 1 / (32 if narrow else _FLOAT_4_BLOCK), compute)
    if kind == "float":
        return Format("fp8", _fp8(block).bytes_each, "fp8" if act_bits == 8 else plain.compute)
    scales = 2 / group if group > 0 else 0.0
    if weights.raw.get("symmetric") is False and group > 0:
        scales += bits / 8 / group
    return Format(f"int{bits}", bits / 8 + scales, "int8" if act_bits == 8 else plain.compute)


def _quark(section: Keys, plain: Format) -> tuple[tuple[ModuleSet, Format], ...]:
    """AMD Quark: one global scheme; layers that differ are listed in `exclude` or carry a scheme of their own."""
    outer = section.section("global_quant_config")
    weight = outer.section("weight") if outer else None
    if weight is None:
        section.refuse(
            "`quantization_config.global_quant_config.weight` is missing, so its bytes cannot be known"
        )
        return ()
    dtype = weight.text("dtype", default="")
    group = weight.integer("group_size", low=-1, high=1_000_000, default=0)
    if dtype.startswith("fp8"):
        return ((ModuleSet.all(), Format("fp8", 1.0, "fp8")),)
    if dtype == "fp4":
        return ((ModuleSet.all(), Format("mxfp4", 0.5 + 1 / 32, "fp4")),)
    bits = 4 if "int4" in dtype else 8
    scale = 2 / group if group > 0 else 0.0
    return (
        (ModuleSet.all(), Format(f"int{bits}", bits / 8 + scale, "int8" if bits == 8 else plain.compute)),
    )
