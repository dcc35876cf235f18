"""The optional library, absent and as a stand-in with its interface; `tests/testbed` asks the real one."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from disaggc.diagnostics import Severity
from disaggc.ir.plan import Shape
from disaggc.perf.aiconfigurator import PACKAGE, Aiconfigurator
from disaggc.perf.estimate import Basis
from disaggc.perf.models import Models
from tests.perf.perf_cases import load, nodes, resolved, service

QWEN = "Qwen/Qwen3-32B"
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 5120, "num_hidden_layers": 64,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 25600,
    "vocab_size": 151936, "max_position_embeddings": 40960, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
SDK = """
class EngineHandle:
    asked = []

    @classmethod
    def compile(cls, model, system, backend, **given):
        cls.asked.append((model, system, backend, given))
        if given["tp_size"] == 8:
            raise RuntimeError("perf database error:\\n  gemm data missing")
        return cls()

    def predict_decode_latency(self, batch, context):
        return 10 + 0.01 * batch + 1e-5 * batch * context

    def predict_prefill_latency(self, count, tokens):
        return 5 + 0.05 * count * tokens

    def last_provenance(self):
        return None
"""


@pytest.fixture(autouse=True)
def _looked_up_anew():
    Aiconfigurator.installed.cache_clear()
    yield
    Aiconfigurator.installed.cache_clear()
    for name in [n for n in sys.modules if n.startswith("aiconfigurator_core")]:
        del sys.modules[name]


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A package of that name, made here: two models, one of them quantised by a second file."""
    package = tmp_path / "aiconfigurator_core"
    (package / "sdk").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "sdk" / "__init__.py").write_text(SDK)
    configs = package / "model_configs"
    configs.mkdir()
    (configs / "Qwen--Qwen3-32B_config.json").write_text(json.dumps(CONFIG))
    (configs / "nvidia--Qwen3-32B-NVFP4_config.json").write_text(json.dumps(CONFIG))
    (configs / "nvidia--Qwen3-32B-NVFP4_hf_quant_config.json").write_text("{}")
    about = tmp_path / f"{PACKAGE.replace('-', '_')}-9.8.7.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 9.8.7\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def spec_of(one=None, *, accelerator="h100-sxm", calibration=None):
    one = one or service(QWEN, load(concurrency=64))
    found = resolved(one, groups=(nodes(accelerator, count=2),), calibration=calibration)
    return replace(found, spec=found.spec.model_copy(update={"step_times": "aiconfigurator"}))


def test_a_spec_that_asks_for_the_library_where_there_is_none_is_told_how_to_get_it(monkeypatch):
    monkeypatch.setattr("disaggc.perf.aiconfigurator.PACKAGE", "a-package-that-nobody-installed")
    outcome = Models.of(spec_of())
    assert outcome.failed
    (found,) = outcome.diagnostics
    assert (found.code, found.severity) == ("DGC207", Severity.ERROR)
    assert found.path == ("step_times",)
    assert "disaggc[aiconfigurator]" in found.help


def test_a_spec_that_does_not_ask_never_looks_for_the_library(monkeypatch):
    def looked(_cls):
        pytest.fail("looked for the library")

    monkeypatch.setattr(Aiconfigurator, "installed", classmethod(looked))
    one = service(QWEN, load(concurrency=64))
    assert Models.of(resolved(one, groups=(nodes("h100-sxm"),))).value.library is None


@pytest.mark.usefixtures("stand_in")
def test_step_times_are_the_library_s_in_seconds_with_its_name_and_version():
    models = Models.of(spec_of()).value
    one, group = models.resolved.services[0], models.resolved.groups[0]
    engine = models.engine(one, group, Shape(tp=2))
    assert engine.decode_step(16, 16 * 1000).value == pytest.approx(0.010 + 0.00016 + 0.00016, rel=1e-3)
    assert engine.prefill_time(4096, 4096**2).value == pytest.approx(0.005 + 0.05e-3 * 4096, rel=1e-3)
    assert engine.constants.basis is Basis.TABLES
    assert engine.constants.source == "aiconfigurator 9.8.7"


@pytest.mark.usefixtures("stand_in")
def test_the_library_is_asked_once_for_a_shape_and_in_its_own_words():
    models = Models.of(spec_of()).value
    one, group = models.resolved.services[0], models.resolved.groups[0]
    for _ in range(3):
        models.library.table(one, group, Shape(tp=2, dp=2, ep=4))
    from aiconfigurator_core.sdk import EngineHandle

    ((model, system, backend, given),) = EngineHandle.asked
    assert (model, system, backend) == (QWEN, "h100_sxm", "vllm")
    assert given == {
        "tp_size": 2, "attention_dp_size": 2, "moe_tp_size": 1, "moe_ep_size": 4, "kvcache_quant_mode": None, "nextn": 0,
    }  # fmt: skip


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("shape", [Shape(tp=8), Shape(tp=2, pp=2), Shape(tp=2, dcp=2)])
def test_a_shape_without_a_table_falls_back_to_the_prior(shape):
    models = Models.of(spec_of()).value
    one, group = models.resolved.services[0], models.resolved.groups[0]
    plain = Models.of(resolved(one, groups=(group,))).value
    assert models.constants(one, group, shape).basis is Basis.PRIOR
    assert models.engine(one, group, shape).decode_step(8, 8000) == plain.engine(
        one, group, shape
    ).decode_step(8, 8000)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("one", "accelerator", "said"),
    [
        (None, "mi300x", "no measurements on mi300x"),
        (
            service("openai/gpt-oss-120b", load(concurrency=8)),
            "h100-sxm",
            "does not know the model openai/gpt-oss-120b",
        ),
        (replace(service(QWEN, load(concurrency=8)), kv_dtype="int4"), "h100-sxm", "kv-cache-dtype: int4"),
        (service(QWEN, load(concurrency=8), settings={"quantization": "fp8"}), "h100-sxm", "`quantization`"),
    ],
)
def test_a_pair_without_measurements_is_a_warning_and_rests_on_priors(one, accelerator, said):
    outcome = Models.of(spec_of(one, accelerator=accelerator))
    (found,) = outcome.diagnostics
    assert (found.code, found.severity) == ("DGC208", Severity.WARNING)
    assert said in found.message
    models = outcome.value
    constants = models.constants(models.resolved.services[0], models.resolved.groups[0], Shape(tp=4))
    assert constants.basis is Basis.PRIOR


@pytest.mark.usefixtures("stand_in")
def test_a_model_with_the_same_sizes_under_another_name_is_the_same_to_a_step():
    one = service(QWEN, load(concurrency=64))
    tuned = replace(one, model=replace(one.model, id="someone/a-fine-tune-of-it"))
    assert not Models.of(spec_of(tuned)).diagnostics
    deeper = replace(one, model=replace(one.model, id="someone/deeper", layers=one.model.layers * 2))
    assert [d.code for d in Models.of(spec_of(deeper)).diagnostics] == ["DGC208"]


@pytest.mark.usefixtures("stand_in")
def test_what_was_calibrated_on_the_user_s_own_engine_wins():
    calibration = """
version: 1
provenance: {tool: by hand}
entries: [{model: Qwen/Qwen3-32B, accelerator: h100-sxm, shape: {tp: 2}, constants: {kappa: 1.1}}]
"""
    models = Models.of(spec_of(calibration=calibration)).value
    one, group = models.resolved.services[0], models.resolved.groups[0]
    assert models.constants(one, group, Shape(tp=2)).basis is Basis.CALIBRATED
    assert models.engine(one, group, Shape(tp=2)).table is None
    assert models.constants(one, group, Shape(tp=4)).basis is Basis.TABLES


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("measured", "level", "basis"), [("tp: 2", 1.5, "carried"), ("tp: 8", 1.0, "tables")]
)
def test_a_measured_shape_s_level_over_its_table_is_carried_to_other_tables(measured, level, basis):
    """Of tp8 there is no table, so that its level beside one is unknown."""
    calibration = f"""
version: 1
provenance: {{tool: by hand}}
entries:
  - model: Qwen/Qwen3-32B
    accelerator: h100-sxm
    shape: {{{measured}}}
    constants:
      {{decode_fixed_s: 0.015, decode_per_sequence_s: 1.5e-5, decode_per_token_s: 1.5e-8,
       prefill_s: 0.0075, prefill_per_token_s: 7.5e-5, prefill_per_square_s: 0}}
"""
    models = Models.of(spec_of(calibration=calibration)).value
    one, group = models.resolved.services[0], models.resolved.groups[0]
    found, plain = (of.engine(one, group, Shape(tp=4)) for of in (models, Models.of(spec_of()).value))
    assert found.constants.basis == basis
    seen, said = (e.decode_step(64, 64 * 2000) for e in (found, plain))
    assert seen.value / said.value == pytest.approx(level, rel=0.02)
    assert seen.high / seen.low <= said.high / said.low * (1 + 1e-9)
    prompts = [e.prefill_time(4096, 4096**2).value for e in (found, plain)]
    assert prompts[0] / prompts[1] == pytest.approx(level, rel=0.02)


@pytest.mark.usefixtures("stand_in")
def test_services_that_differ_in_what_a_step_costs_are_asked_apart():
    models = Models.of(spec_of()).value
    group = models.resolved.groups[0]
    plain = service(QWEN, load(concurrency=8))
    drafting = service(
        QWEN, load(concurrency=8), speculative={"method": "ngram", "tokens": 3, "acceptance": 0.5}
    )
    for one in (plain, replace(plain, name="other"), drafting, replace(plain, max_model_len=4096)):
        models.library.table(one, group, Shape(tp=2))
    from aiconfigurator_core.sdk import EngineHandle

    assert [given["nextn"] for *_, given in EngineHandle.asked] == [0, 3, 0]
