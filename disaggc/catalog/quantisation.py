"""Which parts of a model a checkpoint quantises, and bytes a parameter takes with its scales.

Reads `quantization_config`; knows module names only as texts to be matched against its ignore lists.
"""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.catalog.config_keys import Keys
from disaggc.catalog.facts import Precision


@dataclass(frozen=True, slots=True)
class Quantisation:
    """A checkpoint's precision. scheme: none, fp8, int8, int4, mxfp4, nvfp4, ...; plain_bytes: of what stays as it is."""

    scheme: str
    compute: Precision
    plain_bytes: float
    quantised_bytes: float
    only_experts: bool = False

    def bytes_of(self, module: str, *, linear: bool) -> float:
        """Bytes of one parameter of the module; embeddings, norms, routers and the head stay plain."""
        if not linear or (self.only_experts and ".experts." not in module):
            return self.plain_bytes
        return self.quantised_bytes


def read_quantisation(keys: Keys, plain_bytes: float) -> Quantisation:
    """The quantisation of a config; absent = none."""
    section = keys.section("quantization_config")
    if section is None:
        return Quantisation("none", "bf16", plain_bytes, plain_bytes)
    method = section.text("quant_method")
    if method == "fp8":
        block = section.integers("weight_block_size")
        scale = 4 / (block[0] * block[1]) if len(block) == 2 and min(block) > 0 else 0.0
        return Quantisation("fp8", "fp8", plain_bytes, 1 + scale)
    if method == "mxfp4":
        return Quantisation("mxfp4", "bf16", plain_bytes, 0.5 + 1 / 32, only_experts=True)
    keys.refuse(f"`quantization_config.quant_method` is `{method[:40]}`, which is not known")
    return Quantisation("none", "bf16", plain_bytes, plain_bytes)
