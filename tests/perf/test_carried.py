"""What was measured of one shape is evidence for the others: at the same level, in wider ranges."""

from __future__ import annotations

import json
import math
import re

import pytest
import yaml

from disaggc.cli.main import main
from disaggc.ir.plan import Shape
from disaggc.perf.calibration.prior_step import PINNED
from disaggc.perf.carried import FILE, widths
from disaggc.perf.constant_bounds import BOUNDS, TOGETHER
from disaggc.perf.constants import NAMES, exactly
from disaggc.perf.models import Models
from disaggc.perf.transfer import Endpoint, kv_path
from tests.perf.perf_cases import CATALOG, load, nodes, resolved, service

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
R1 = "deepseek-ai/DeepSeek-R1"
GROUP = nodes("h100-sxm")
SHAPES = (Shape(tp=1), Shape(tp=2), Shape(tp=8))
TP4 = Shape(tp=4)
STEPS = ((1.0, 384.0), (32.0, 2048.0), (64.0, 8192.0), (256.0, 384.0))
PROMPTS = (512.0, 2048.0, 8192.0)


def engine(models, shape, group=GROUP):
    return models.engine(models.resolved.services[0], group, shape)


def models_of(*entries, model=LLAMA, group=GROUP):
    text = yaml.safe_dump({"version": 1, "provenance": {"tool": "test"}, "entries": list(entries)})
    one = service(model, load(concurrency=64))
    built = Models.of(resolved(one, groups=(group,), calibration=text if entries else None)).value
    assert built is not None
    return built


def steps_at(level, shape=TP4, *, model=LLAMA, group=GROUP):
    """Decode steps at a level of the priors, known to 5 %, as `calibrate` states them."""
    prior = engine(models_of(model=model, group=group), shape, group).constants
    beside = {name: getattr(prior, name).mid for name in PINNED}
    return {"step_miss": [level / 1.05, level, level * 1.05], **beside}


def prompts_at(level, shape=TP4):
    """Prompts at a level of the priors, the cost before them included."""
    times = engine(models_of(), shape).likely
    values = {
        "prefill_s": level * (times.values.hop_s + times.prefill_fixed_s) - 1e-3,
        "prefill_per_token_s": level * times.prefill_token_s,
        "prefill_per_square_s": level * times.prefill_square_s,
    }
    return {**values, "prompt_miss": [1 / 1.05, 1.0, 1.05], "hop_s": [0.9e-3, 1e-3, 1.1e-3]}


def entry(constants, shape=TP4, model=LLAMA):
    return {
        "model": model, "accelerator": GROUP.accelerator.id, "shape": shape.model_dump(exclude_defaults=True),
        "constants": constants,
    }  # fmt: skip


def width(found):
    return math.log(found.high / found.low)


def prompt(of, tokens):
    """A first token, lowest and highest with the front end's time."""
    return [t.values.hop_s + t.prefill(tokens, tokens**2, 1) for t in (of.best, of.likely, of.worst)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_steps_of_another_shape_stand_at_the_measured_level_in_a_range_between_measured_and_prior(shape):
    models = models_of(entry(steps_at(1.5)))
    carried, prior, measured = engine(models, shape), engine(models_of(), shape), engine(models, TP4)
    for batch, context in STEPS:
        seen, said, own = (e.decode_step(batch, batch * context) for e in (carried, prior, measured))
        assert seen.value / said.value == pytest.approx(1.5, rel=0.03)
        assert width(own) < width(seen) <= width(said) * (1 + 1e-6)
        assert seen.basis == "carried"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prompts_and_what_they_cost_before_their_first_token_are_carried_alike(shape):
    models = models_of(entry(prompts_at(1.5)))
    carried, prior, measured = engine(models, shape), engine(models_of(), shape), engine(models, TP4)
    for tokens in PROMPTS:
        seen, said, own = (prompt(e, tokens) for e in (carried, prior, measured))
        assert seen[1] / said[1] == pytest.approx(1.5, rel=0.01)
        assert own[2] / own[0] < seen[2] / seen[0] <= said[2] / said[0] * (1 + 1e-6)
    assert (
        carried.decode_step(8, 8000).value == prior.decode_step(8, 8000).value
    )  # of steps nothing was measured


def test_how_far_the_two_levels_may_lie_apart_is_what_published_tables_say():
    models = models_of(entry({**steps_at(1.0), **prompts_at(1.0)}))

    def slow(shape):
        found = [engine(models, shape).decode_step(b, b * context) for b, context in STEPS]
        return sum(math.log(step.high / step.value) for step in found) / len(found)

    assert slow(Shape(tp=8)) == pytest.approx(math.hypot(widths()["decode"], slow(TP4)), rel=0.1)


def test_growth_with_the_batch_is_carried():
    slope = models_of(entry({**steps_at(1.2), "batch_slope": 0.1}))
    carried, prior = engine(slope, Shape(tp=2)), engine(models_of(), Shape(tp=2))
    ratio = {b: carried.likely.decode(b, 512) / prior.likely.decode(b, 512) for b in (1.0, 32.0, 256.0)}
    assert ratio[32.0] == pytest.approx(1.2, rel=0.02)
    assert ratio[256.0] / ratio[1.0] == pytest.approx(256**0.1, rel=0.02)


def test_the_kv_link_keeps_its_share_of_its_line():
    def speeds(models, model):
        one = service(model)
        found = {}
        for shape in (Shape(tp=2), TP4, Shape(tp=8)):
            end = Endpoint(GROUP, shape)
            path = kv_path(one, CATALOG.fabric("infiniband"), end, decode=end, same_node=False)
            found[str(shape)] = path.speed(engine(models, shape).likely.values)
        return found

    for model in (LLAMA, R1):
        prior = speeds(models_of(model=model), model)
        slow = {"kv_bytes_per_s": prior["tp4"] / 3}
        carried = speeds(models_of(entry(slow, model=model), model=model), model)
        assert {k: v / prior[k] for k, v in carried.items()} == pytest.approx(dict.fromkeys(prior, 1 / 3))
        assert (
            engine(models_of(entry(slow, model=model), model=model), Shape(tp=2)).constants.basis == "prior"
        )


def test_a_shape_that_was_measured_keeps_its_own_fit_and_takes_what_was_not_measured_of_it_from_the_nearest():
    own = entry(steps_at(0.9, Shape(tp=8)), Shape(tp=8))
    models = models_of(entry({**steps_at(1.5), **prompts_at(1.5)}), own)
    alone = engine(models_of(own), Shape(tp=8))
    both = engine(models, Shape(tp=8))
    assert both.decode_step(32, 32 * 512).value == alone.decode_step(32, 32 * 512).value
    assert both.constants.basis == "calibrated"
    prior = engine(models_of(), Shape(tp=8))
    assert prompt(both, 4096)[1] / prompt(prior, 4096)[1] == pytest.approx(1.5, rel=0.01)


def test_of_several_shapes_the_nearest_speaks():
    models = models_of(entry(steps_at(2.0, Shape(tp=1)), Shape(tp=1)), entry(steps_at(1.2, TP4), TP4))
    for shape, level, source in ((Shape(tp=8), 1.2, "tp4"), (Shape(tp=1, pp=1), 2.0, None)):
        found, prior = engine(models, shape), engine(models_of(), shape)
        assert found.likely.decode(32, 512) / prior.likely.decode(32, 512) == pytest.approx(level, rel=0.03)
        assert found.constants.carried_from == (() if source is None else (source,))


@pytest.mark.parametrize("strange", [{"model": R1}, {"accelerator": "h200"}])
def test_nothing_is_carried_to_another_model_or_accelerator(strange):
    models = models_of({**entry(steps_at(1.5)), **strange})
    assert engine(models, Shape(tp=2)).constants == engine(models_of(), Shape(tp=2)).constants


def test_a_mixture_of_experts_is_carried_within_its_priors_range():
    group = nodes("h100-sxm", count=8)
    wide = Shape(dp=16, ep=16)
    given = entry(steps_at(1.5, Shape(tp=8), model=R1, group=group), Shape(tp=8), R1)
    models, plain = models_of(given, model=R1, group=group), models_of(model=R1, group=group)
    for batch in (16, 512):
        seen, said = (engine(m, wide, group).decode_step(batch, batch * 2048) for m in (models, plain))
        assert seen.value / said.value == pytest.approx(1.5, rel=0.05)
        assert said.low * 1.5 <= seen.low * (1 + 1e-6)
        assert seen.high <= said.high * 1.5 * (1 + 1e-6)


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("name", sorted(set(NAMES) - {n for names in TOGETHER for n in names}))
def test_whatever_a_file_may_state_of_one_shape_gives_times_above_zero_of_another(name, end):
    value = float(BOUNDS[name][end])
    for stated in (value, [min(value, 0.9 * value), value, max(value, 1.1 * value)]):
        if isinstance(stated, list) and not BOUNDS[name][0] <= stated[0] <= stated[2] <= BOUNDS[name][1]:
            continue
        found = engine(models_of(entry({name: stated})), Shape(tp=8))
        for times in (found.best, found.likely, found.worst, found.drawn(dict.fromkeys(NAMES, 2.5))):
            assert 0 < times.decode(1.0, 16.0) < 1e12
            assert 0 < times.decode(512.0, 32768.0) < 1e12
            assert 0 < times.prefill(1.0, 1.0, 1.0) < 1e12


def test_a_growth_that_is_next_to_nothing_is_drawn_as_that():
    found = engine(models_of(entry({**steps_at(1.2), "batch_slope": [-0.1, 1e-17, 0.1]})), TP4)
    assert abs(found.constants.drawn(dict.fromkeys(NAMES, 2.5)).batch_slope) < 0.3


def test_kappa_of_an_engine_is_that_of_its_other_shapes():
    found = engine(models_of(entry({"kappa": [1.28, 1.3, 1.32]})), Shape(tp=2)).constants.kappa
    assert found.mid == 1.3
    assert found.low <= 1.3 * 0.9 < 1.3 * 1.1 <= found.high
    assert engine(models_of(), Shape(tp=2)).constants.kappa != exactly(1.3)


def test_the_figures_say_where_they_come_from():
    written = json.loads(FILE.read_text())
    for part in ("decode", "prompt"):
        found = written["shapes"][part]
        assert found["sources"]
        assert found["pairs"] >= 100
        assert found["apart"] < found["alone"]  # a level says more of another shape than nothing does
    assert (
        written["models"]["decode"]["apart"] > written["models"]["decode"]["alone"]
    )  # and not of another model


def starter(tmp_path, name, *entries):
    folder = tmp_path / name
    assert main(["init", str(folder), "-q"]) == 0
    spec = folder / "disaggc.yaml"
    if entries:
        text = {"version": 1, "provenance": {"tool": "test"}, "entries": list(entries)}
        (folder / "mine.yaml").write_text(yaml.safe_dump(text))
        spec.write_text(spec.read_text() + "calibration: mine.yaml\n")
    return spec


def planned(spec, capsys):
    capsys.readouterr()
    assert main(["plan", str(spec), "--refresh=false", "--format", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)["services"]["chat"]
    return plan, [(p["role"], p["replicas"], p["shape"]["tp"]) for p in plan["pools"]]


@pytest.mark.parametrize("level", [0.8, 1.05, 1.2, 2.0])
def test_a_plan_goes_to_other_shapes_only_where_they_are_better_at_the_level_that_was_measured(
    tmp_path, capsys, level
):
    every = [entry({**steps_at(level, s), **prompts_at(level, s)}, s) for s in (*SHAPES, TP4)]
    carried, layout = planned(starter(tmp_path, "one", every[-1]), capsys)
    told, same = planned(starter(tmp_path, "every", *every), capsys)
    assert layout == same
    assert told["predicted"]["output_tok_per_s"]["basis"] == "calibrated"
    elsewhere = any(tp != 4 for _, _, tp in layout)
    assert carried["predicted"]["output_tok_per_s"]["basis"] == ("carried" if elsewhere else "calibrated")
    assert carried["predicted"]["carried_from"] == (["tp4"] if elsewhere else [])
    assert carried["predicted"]["classes"]["rag"]["e2e_ms"]["p50"]["value"] == pytest.approx(
        told["predicted"]["classes"]["rag"]["e2e_ms"]["p50"]["value"], rel=0.02
    )


def test_plan_explain_and_finding_say_from_which_shape(tmp_path, capsys):
    spec = starter(tmp_path, "one", entry({**steps_at(2.0), **prompts_at(2.0)}))
    spec.write_text(
        spec.read_text().replace(
            "{mode: auto}", "{mode: disaggregated, prefill: {tp: [2]}, decode: {tp: [2]}}"
        )
    )
    capsys.readouterr()
    for verb in ("plan", "explain"):
        main([verb, str(spec)])
        said = capsys.readouterr()
        assert re.search(r"basis[^\n]*: carried from tp4", said.out)
    assert "are carried from tp4, with wider ranges" in " ".join(said.err.split()) or verb == "explain"
