from __future__ import annotations

import json
import math
import random
import time

import pytest

from disaggc.ir.plan import Role, Shape
from disaggc.perf.calibration.calibrate import calibrate, shape_from
from disaggc.perf.calibration.engine_fit import decode_s
from disaggc.perf.calibration.prior_step import PriorEngine
from disaggc.perf.calibration.reading import Setting
from disaggc.perf.calibration.schedule import schedule
from disaggc.perf.calibration.written import constants_of, file_text
from disaggc.perf.calibration_file import read_calibration
from disaggc.perf.estimate import Basis
from disaggc.resolve.model import CalibrationSource
from tests.perf.calibration.runs import MODEL, Engine, written
from tests.perf.perf_cases import CATALOG, bench, load, nodes

EVERY = schedule(16384, 256)


@pytest.fixture
def results(tmp_path):
    engine = Engine()
    for i, run in enumerate(EVERY):
        written(tmp_path, f"{i}", engine.run(run.kind, run.isl, run.osl, run.concurrency))
    return tmp_path


def test_the_schedule_is_thirteen_runs_within_the_model_length():
    for longest, sequences in ((16384, 256), (4096, 64), (1024, 8), (131072, 1024)):
        runs = schedule(longest, sequences)
        assert len(runs) == 13
        assert len(set(runs)) == 13 or longest < 4096
        assert all(r.isl + r.osl <= longest for r in runs), (
            longest,
            [r for r in runs if r.isl + r.osl > longest],
        )


def test_the_constants_of_a_known_engine_come_back(results):
    engine = Engine()
    done = calibrate([results], Setting(), CATALOG)
    (one,) = done.engines
    found = constants_of(one.fitted.fit)
    assert found["decode_fixed_s"].mid == pytest.approx(engine.a, rel=0.02)
    assert found["decode_per_sequence_s"].mid == pytest.approx(engine.b, rel=0.05)
    assert found["decode_per_token_s"].mid == pytest.approx(engine.c, rel=0.05)
    assert found["prefill_s"].mid == pytest.approx(engine.p0, rel=0.02)
    assert found["prefill_per_token_s"].mid == pytest.approx(engine.token, rel=0.02)
    assert found["prefill_per_square_s"].mid == pytest.approx(engine.square, rel=0.05)
    assert found["kv_setup_s"].mid == pytest.approx(engine.kv_setup, rel=0.05)
    assert found["kappa"].mid == pytest.approx(engine.kappa, rel=0.05)
    assert 1 / found["kv_bytes_per_s"].mid == pytest.approx(engine.kv_byte, rel=0.05)


def test_the_file_is_picked_up_by_the_models_with_basis_and_range(results):
    done = calibrate([results], Setting(kv_tokens=480_000), CATALOG)
    text = file_text(done.calibration)
    assert not read_calibration(CalibrationSource("c", text)).failed
    group = nodes("mi300x")
    one = bench(MODEL, group, Shape(tp=8), load(isl=1024, osl=512, concurrency=64), calibration=text)
    step = one.models.engine(one.service, group, Shape(tp=8)).decode_step(64, 64 * 1280)
    assert step.basis is Basis.CALIBRATED
    assert step.value == pytest.approx(Engine().step(64, 1280), rel=0.03)
    assert step.low < step.value < step.high
    fit = one.models.memory(one.service, group, Role.DECODE, shape=Shape(tp=8))
    assert fit.basis is Basis.MEASURED
    assert fit.kv_tokens_low == fit.kv_tokens_high == 480_000
    other = one.models.memory(one.service, group, Role.DECODE, shape=Shape(tp=4))
    assert other.basis is Basis.PRIOR
    carried = one.models.constants(one.service, group, Shape(tp=4))
    assert (carried.basis, carried.carried_from) == (Basis.CARRIED, ("tp8",))


def test_the_file_says_where_it_comes_from(results):
    calibration = calibrate([results], Setting(), CATALOG).calibration
    provenance = calibration.provenance
    assert provenance.tool == "disaggc calibrate"
    assert provenance.sources == ("vllm bench serve",)
    assert all(digest.startswith("sha256:") for digest in provenance.digests.values())
    assert len(provenance.digests) == 13  # of the mixed runs, too: kappa comes from them
    assert set(provenance.errors) == {
        f"mi300x tp8 {part}" for part in ("decode step", "prefill", "kv transfer")
    }
    assert all(error < 0.05 for error in provenance.errors.values())


def test_noise_stays_inside_the_stated_range(tmp_path):
    engine = Engine(noise=0.05)
    for i, run in enumerate(EVERY):
        written(tmp_path, f"{i}", engine.run(run.kind, run.isl, run.osl, run.concurrency))
    text = file_text(calibrate([tmp_path], Setting(), CATALOG).calibration)
    group = nodes("mi300x")
    one = bench(MODEL, group, Shape(tp=8), load(concurrency=64), calibration=text)
    model = one.models.engine(one.service, group, Shape(tp=8))
    points = [(b, s) for b in (4, 16, 64, 200) for s in (512, 2048, 8192)]
    steps = [(model.decode_step(b, b * s), engine.step(b, s)) for b, s in points]
    assert sum(e.low <= true <= e.high for e, true in steps) >= 0.8 * len(steps)
    assert max(abs(e.value / true - 1) for e, true in steps) < 0.2


def test_one_run_sets_the_level_of_the_models_own_step_and_says_what_to_run(tmp_path):
    path = written(tmp_path, "one", Engine().run("decode", 2048, 512, 64))
    done = calibrate([path], Setting(), CATALOG)
    group = nodes("mi300x")
    before, after = (
        bench(MODEL, group, Shape(tp=8), load(concurrency=64), calibration=text).models
        for text in (None, file_text(done.calibration))
    )
    service = bench(MODEL, group, Shape(tp=8), load(concurrency=64)).service
    steps = [m.engine(service, group, Shape(tp=8)).decode_step(64, 64 * 2304) for m in (before, after)]
    true = Engine().step(64, 2304)
    assert abs(steps[1].value / true - 1) < 0.1 < abs(steps[0].value / true - 1)
    assert steps[1].high / steps[1].low < 0.7 * steps[0].high / steps[0].low
    assert done.engines[0].next_run is not None
    assert done.engines[0].next_run.before is None


def test_a_model_nobody_knows_needs_three_runs(tmp_path):
    run = {**Engine().run("decode", 128, 512, 1), "model_id": "nobody/Nothing-1B"}
    done = calibrate([written(tmp_path, "one", run)], Setting(), CATALOG)
    assert done.calibration is None
    assert "decode step: not fitted, 1 run cannot determine 3 constants" in [str(d) for d in done.dropped]


def test_the_form_stands_that_predicts_runs_it_has_not_seen_better(tmp_path):
    """Four noisy runs at one prompt length say little of what a token of context costs; the model's own step does."""
    shape = Shape(tp=8)
    engine = PriorEngine.of(CATALOG, MODEL, ("mi300x", shape))
    for i, (batch, noise) in enumerate(((8, 1.06), (24, 0.93), (64, 1.05), (160, 0.97))):
        step = 1.3 * noise * engine.step_s(batch, 1152)
        run = {
            **Engine().run("decode", 1024, 256, batch),
            "median_tpot_ms": 1e3 * step, "median_itl_ms": 1e3 * step, "median_e2el_ms": 1e3 * (0.05 + 255 * step),
            "median_ttft_ms": 50.0,
        }  # fmt: skip
        written(tmp_path, f"{i}", run)
    (one,) = calibrate([tmp_path], Setting(), CATALOG).engines
    part = one.fitted.fit.part("decode step")
    assert part.names == ("step_miss", "batch_slope")
    assert part.left_out_error < 0.1
    far = decode_s(part, engine, (64.0, 8192.0)) / (1.3 * engine.step_s(64, 8192))
    assert far == pytest.approx(1, abs=0.1)


def test_runs_that_see_two_constants_only_together_are_told_apart_by_a_run_at_another_length(tmp_path):
    engine = Engine()
    for concurrency in (1, 16, 64, 128):
        written(tmp_path, f"{concurrency}", engine.run("decode", 1024, 256, concurrency))
    for length in (512, 2048, 8192, 16384):
        written(tmp_path, f"p{length}", engine.run("prefill", length, 1, 1))
    (one,) = calibrate([tmp_path], Setting(), CATALOG).engines
    part = one.fitted.fit.part("decode step")
    assert part.names == ("decode_fixed_s", "decode_per_sequence_s", "decode_per_token_s")
    seen = part.geometry()
    assert seen.blurred
    assert {"decode_per_sequence_s", "decode_per_token_s"} <= set(seen.weakest)
    advice = one.next_run
    assert advice.run.kind == "decode"
    assert advice.run.isl != 1024
    assert advice.after < 0.5 * advice.before


def test_what_runs_cannot_pin_down_is_named(tmp_path):
    engine = Engine(noise=0.02)
    for concurrency in (1, 2, 3, 4):  # one prompt length: b and c act as one
        written(tmp_path, f"{concurrency}", engine.run("decode", 128, 128, concurrency))
    (one,) = calibrate([tmp_path], Setting(), CATALOG).engines
    part = one.fitted.fit.part("decode step")
    assert {"decode_per_sequence_s", "decode_per_token_s"} & set(part.loose)
    assert one.next_run is not None
    assert one.next_run.run.kind in {"decode", "prefill"}


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"disaggc_accelerator": ""}, "--accelerator"),
        ({"disaggc_shape": "wide"}, "--shape"),
        ({"disaggc_accelerator": "abacus"}, "not in the catalog"),
    ],
)
def test_a_run_that_does_not_say_what_it_measured_is_skipped_with_the_option(tmp_path, setting, says):
    path = written(tmp_path, "one", {**Engine().run("decode", 128, 512, 1), **setting})
    (dropped,) = calibrate([path], Setting(), CATALOG).dropped
    assert says in dropped.why


def test_shapes_as_plans_write_them():
    assert shape_from("tp8") == Shape(tp=8)
    assert shape_from("tp4 dp2 ep8") == Shape(tp=4, dp=2, ep=8)
    assert shape_from("tp4,dp2") == Shape(tp=4, dp=2)
    assert shape_from("tp8 dcp8") == Shape(tp=8, dcp=8)
    assert shape_from(str(Shape(tp=4, pp=2, dp=2, ep=8, dcp=4))) == Shape(tp=4, pp=2, dp=2, ep=8, dcp=4)
    for bad in ("", "8", "tp0", "tp4 tp8", "tp4; rm -rf"):
        assert shape_from(bad) is None


def test_a_file_survives_json_that_is_none(tmp_path):
    for name, text in (("a", "{"), ("b", "[1, 2]"), ("c", json.dumps({"x": math.pi})), ("d", "[" * 100_000)):
        (tmp_path / f"{name}.json").write_text(text)
    done = calibrate([tmp_path, tmp_path / "absent.json"], Setting(), CATALOG)
    assert done.calibration is None
    assert done.runs == 0
    assert len(done.dropped) == 6


def noisy(folder, noise, seed):
    """The schedule's thirteen runs of the known engine, every time off by that much."""
    draw = random.Random(seed)  # noqa: S311 - a fixed design
    for i, run in enumerate(EVERY):
        found = Engine().run(run.kind, run.isl, run.osl, run.concurrency)
        token, first = (math.exp(draw.gauss(0, noise)) for _ in range(2))
        for key in ("median_tpot_ms", "median_itl_ms", "p99_itl_ms"):
            found[key] *= token
        found["median_ttft_ms"] *= first
        found["median_e2el_ms"] = found["median_ttft_ms"] + (run.osl - 1) * found["median_tpot_ms"]
        written(folder, f"{i}", found)


def engine_model(text):
    group, shape = nodes("mi300x"), Shape(tp=8)
    one = bench(MODEL, group, shape, load(concurrency=64), calibration=text)
    return one.models.engine(one.service, group, shape)


@pytest.mark.parametrize("seed", range(4))
def test_the_schedule_pins_every_constant_and_leaves_less_doubt_than_the_priors(tmp_path, seed):
    noisy(tmp_path, 0.01, seed)
    done = calibrate([tmp_path], Setting(), CATALOG)
    (one,) = done.engines
    prefill = one.fitted.fit.part("prefill")
    assert prefill.loose == ()
    assert one.fitted.fit.part("decode step").loose == ()
    for name, found in prefill.ranges().items():
        assert found.high / found.low < 1.6, name
    before, after = engine_model(None), engine_model(file_text(done.calibration))
    for tokens in (512, 2048, 8192, 16384):
        prior, fitted = (m.prefill_time(tokens, tokens * tokens) for m in (before, after))
        assert fitted.low <= Engine().prompt(tokens) <= fitted.high, tokens
        assert fitted.high / fitted.low < 0.5 * prior.high / prior.low, tokens
    for batch, context in ((1, 512), (32, 2048), (200, 1024), (16, 8192)):
        prior, fitted = (m.decode_step(batch, batch * context) for m in (before, after))
        assert fitted.low <= Engine().step(batch, context) <= fitted.high, (batch, context)
        assert fitted.high / fitted.low < 0.6 * prior.high / prior.low, (batch, context)


@pytest.mark.parametrize("chosen", [(5, 6, 7), (0, 1, 2, 3), (2, 3, 4), (0, 3, 4, 9, 11), (0, 1, 5, 6, 7)])
def test_a_part_of_the_schedule_leaves_hardly_more_doubt_than_the_priors(tmp_path, chosen):
    """An engine's level is believed to a factor of 1.67 either way, which the priors of this one undercut a little."""
    noisy(tmp_path, 0.02, 7)
    done = calibrate([tmp_path / f"{i}.json" for i in chosen], Setting(), CATALOG)
    before, after = engine_model(None), engine_model(file_text(done.calibration))
    for tokens in (512, 2048, 8192):
        prior, fitted = (m.prefill_time(tokens, tokens * tokens) for m in (before, after))
        assert fitted.high / fitted.low <= 1.1 * prior.high / prior.low, tokens
    for batch, context in ((1, 512), (32, 2048), (200, 1024)):
        prior, fitted = (m.decode_step(batch, batch * context) for m in (before, after))
        assert fitted.high / fitted.low <= 1.25 * prior.high / prior.low, (batch, context)


def test_nothing_is_stated_as_certain(tmp_path):
    """A constant that comes out as zero may be as large as the runs leave room for; what no run shows is not stated."""
    engine = Engine(c=0.0, square=0.0)
    for i, run in enumerate(EVERY):
        written(tmp_path, f"{i}", engine.run(run.kind, run.isl, run.osl, run.concurrency))
    done = calibrate([tmp_path], Setting(), CATALOG)
    found = constants_of(done.engines[0].fitted.fit)
    assert all(given.low < given.high for given in found.values()), found
    assert "mixed_s" not in found
    assert any("does not hold a whole prompt" in d.why for d in done.dropped)


def test_a_prompt_in_the_tail_of_a_shared_step_gives_its_cost_with_a_range(tmp_path):
    engine = Engine()
    for i, run in enumerate(EVERY):
        found = engine.run(run.kind, run.isl, run.osl, run.concurrency)
        if run.kind == "mixed":
            stall = engine.prompt(run.isl) - engine.p0 + 0.005
            found["p99_itl_ms"] = found["median_itl_ms"] + 1e3 * stall
        written(tmp_path, f"{i}", found)
    found = constants_of(calibrate([tmp_path], Setting(), CATALOG).engines[0].fitted.fit)["mixed_s"]
    assert found.low < 0.005 < found.high
    assert found.low < found.mid < found.high


def test_one_file_in_seconds_is_left_aside_and_moves_nothing(results):
    clean = calibrate([results], Setting(), CATALOG)
    run = json.loads((results / "1.json").read_text())
    wrong = {key: value / 1000 if key.endswith("_ms") else value for key, value in run.items()}
    bad = written(results.parent / f"{results.name}-bad", "seconds", wrong)
    done = calibrate([results, bad], Setting(), CATALOG)
    assert ["units are mixed" in d.why for d in done.dropped if d.name == str(bad)] == [True]
    assert constants_of(done.engines[0].fitted.fit) == constants_of(clean.engines[0].fitted.fit)


@pytest.mark.parametrize("model", [MODEL, "nobody/Nothing-1B"])
def test_a_run_that_the_others_contradict_is_left_aside_with_the_factor(tmp_path, model):
    for i, run in enumerate(EVERY):
        found = {**Engine().run(run.kind, run.isl, run.osl, run.concurrency), "model_id": model}
        written(tmp_path, f"{i:02}", found)
    clean = constants_of(calibrate([tmp_path], Setting(), CATALOG).engines[0].fitted.fit)
    run = json.loads((tmp_path / "02.json").read_text())
    for key in ("median_tpot_ms", "median_itl_ms", "median_e2el_ms"):
        run[key] *= 8
    run["duration"] *= 8
    written(tmp_path, "02", run)
    done = calibrate([tmp_path], Setting(), CATALOG)
    (lost,) = [d for d in done.dropped if "decode step dropped" in d.what]
    assert lost.name.endswith("02.json")
    assert " times what the other 6 runs say" in lost.why
    found = constants_of(done.engines[0].fitted.fit)
    assert found["decode_fixed_s"].mid == pytest.approx(clean["decode_fixed_s"].mid, rel=0.05)


def test_runs_that_contradict_each_other_are_not_fitted(tmp_path):
    for i, batch in enumerate((1, 4, 16, 64, 128, 256)):
        run = Engine().run("decode", 1024, 256, batch)
        factor = (1, 20)[i % 2]
        for key in ("median_tpot_ms", "median_itl_ms", "median_e2el_ms"):
            run[key] *= factor
        written(tmp_path, f"{i}", {**run, "duration": run["duration"] * factor})
    done = calibrate([tmp_path], Setting(), CATALOG)
    assert done.calibration is None
    assert any(d.what == "left to the priors" and "contradict" in d.why for d in done.dropped)


def test_the_next_run_is_none_that_was_made(results):
    (one,) = calibrate([results], Setting(), CATALOG).engines
    assert one.next_run is None


def with_schedule_of(longest, runs):
    """Results as the commands of a spec's `calibrate --plan` have them."""
    for run in runs:
        said = {"disaggc_max_model_len": str(longest), "disaggc_roles": "prefill,decode"}
        yield run, Engine().run(run.kind, run.isl, run.osl, run.concurrency) | said


@pytest.mark.parametrize("kept", [13, 8, 4, 2])
def test_the_next_run_stands_in_the_schedule_of_the_spec_and_was_not_made(tmp_path, kept):
    own = schedule(8192, 256)
    for i, (_, result) in enumerate(with_schedule_of(8192, own[:kept])):
        written(tmp_path, f"{i}", result)
    (one,) = calibrate([tmp_path], Setting(), CATALOG).engines
    if kept == 13:
        assert one.next_run is None
    else:
        assert one.of_spec
        assert one.next_run.run in own[kept:]


def test_a_run_whose_fit_came_to_nothing_is_not_advised_again(tmp_path):
    own = schedule(8192, 256)
    for i, (run, result) in enumerate(with_schedule_of(8192, own)):
        if run.kind == "prefill":
            result["median_ttft_ms"] *= 1 + 9 * (i % 2)
        written(tmp_path, f"{i}", result)
    (one,) = calibrate([tmp_path], Setting(), CATALOG).engines
    assert one.next_run is None or one.next_run.run not in own


@pytest.mark.parametrize(("roles", "kind"), [("prefill", "prefill"), ("decode", "decode")])
def test_nothing_is_asked_of_an_engine_that_the_plan_has_it_not_do(tmp_path, roles, kind):
    first = next(run for run in schedule(8192, 256) if run.kind == kind)
    said = {"disaggc_max_model_len": "8192", "disaggc_roles": roles}
    written(tmp_path, "one", Engine().run(first.kind, first.isl, first.osl, first.concurrency) | said)
    (one,) = calibrate([tmp_path], Setting(), CATALOG).engines
    assert one.next_run.run.kind == kind


@pytest.mark.parametrize("off", [0.1, 0.25])
def test_what_the_prefill_fit_is_off_by_is_in_the_range_of_the_kv_link(tmp_path, off):
    engine, held, stated = Engine(kv_byte=6e-10), 0, 0
    for seed in range(30):
        draw = random.Random(seed)  # noqa: S311 - a fixed design
        for i, run in enumerate(EVERY):
            result = engine.run(run.kind, run.isl, run.osl, run.concurrency)
            if run.kind == "prefill":
                shaken = math.exp(draw.gauss(0, off))
                for key in ("median_ttft_ms", "median_e2el_ms", "duration"):
                    result[key] *= shaken
            written(tmp_path / str(seed), f"{i}", result)
        (one,) = calibrate([tmp_path / str(seed)], Setting(), CATALOG).engines
        found = constants_of(one.fitted.fit).get("kv_bytes_per_s")
        if found is not None:
            stated += 1
            held += found.low <= 1 / engine.kv_byte <= found.high
    assert stated >= 10
    assert held >= 0.8 * stated


def test_a_figure_that_is_no_number_is_named(tmp_path):
    run = {**Engine().run("decode", 1024, 256, 4), "median_tpot_ms": math.nan}
    said = [(d.what, d.why) for d in calibrate([written(tmp_path, "nan", run)], Setting(), CATALOG).dropped]
    assert ("`median_tpot_ms` dropped", "`nan` is not a number") in said


def test_every_file_of_a_sweep_has_its_digest(tmp_path):
    for folder, run in zip("AB", EVERY, strict=False):
        written(tmp_path / folder, "run=0", Engine().run(run.kind, run.isl, run.osl, run.concurrency))
    digests = calibrate([tmp_path], Setting(), CATALOG).calibration.provenance.digests
    assert len(digests) == 2


def test_a_run_that_no_fit_can_use_is_named(tmp_path):
    run = {**Engine().run("decode", 1024, 256, 4), "median_tpot_ms": -3, "median_itl_ms": None}
    path = written(tmp_path, "neg", run)
    said = [(d.what, d.why) for d in calibrate([path], Setting(), CATALOG).dropped]
    assert ("`median_tpot_ms` dropped", "`-3` is below zero") in said
    assert ("run not used", "no fit has a use for what it says") in said


@pytest.mark.parametrize(("said", "each"), [(None, 70272), ("fp8", 35136)])
def test_transfer_bytes_and_steps_have_the_precision_of_the_cache_that_was_measured(tmp_path, said, each):
    """A plan counts the bytes of its own cache: a speed counted in others would be wrong by their ratio."""
    for i, run in enumerate(EVERY):
        found = Engine().run(run.kind, run.isl, run.osl, run.concurrency, kv_bytes=each)
        written(tmp_path, f"{i}", {**found, "disaggc_kv_dtype": said} if said else found)
    (one,) = calibrate([tmp_path], Setting(), CATALOG).engines
    assert constants_of(one.fitted.fit)["kv_bytes_per_s"].mid == pytest.approx(1 / Engine().kv_byte, rel=0.02)
    (other,) = calibrate([tmp_path], Setting(kv_dtype="bf16" if said else "fp8"), CATALOG).engines
    wrong = constants_of(other.fitted.fit)["kv_bytes_per_s"].mid * Engine().kv_byte
    assert wrong == pytest.approx(2.0 if said else 0.5, rel=0.02)


def test_a_level_is_taken_against_steps_of_the_cache_that_was_measured(tmp_path):
    shape = Shape(tp=8)
    fp8 = PriorEngine.of(CATALOG, MODEL, ("mi300x", shape), kv_dtype="fp8")
    step = fp8.step_s(64, 16384 + 64)
    run = {
        **Engine().run("decode", 16384, 128, 64),
        "median_tpot_ms": 1e3 * step, "median_itl_ms": 1e3 * step, "median_ttft_ms": 50.0,
        "median_e2el_ms": 50.0 + 127e3 * step, "disaggc_kv_dtype": "fp8",
    }  # fmt: skip
    (one,) = calibrate([written(tmp_path, "one", run)], Setting(), CATALOG).engines
    assert one.fitted.fit.part("decode step").fit.coefficients[0] == pytest.approx(1, abs=0.05)


def test_a_run_with_another_cache_is_left_aside(tmp_path):
    for i, kind in enumerate(("fp8", "fp8", "bf16")):
        run = Engine().run("decode", 1024, 256, 4 << i)
        written(tmp_path, f"{i}", {**run, "disaggc_kv_dtype": kind})
    said = [str(d) for d in calibrate([tmp_path], Setting(), CATALOG).dropped]
    assert sum("its KV cache is `bf16`, that of others `fp8`" in d for d in said) == 1


def test_the_time_of_a_fit_grows_with_the_runs_and_not_as_their_cube(tmp_path):
    """Two hundred runs took 20 s of CPU, where every run was left out in turn of fits that left every run out in turn."""
    draw = random.Random(1)  # noqa: S311 - a fixed design
    runs = [
        Engine(noise=0.05).run("decode", draw.randint(100, 8000), draw.randint(64, 512), draw.randint(2, 200))
        for _ in range(800)
    ]
    spent = []
    for count in (200, 800):
        file = written(tmp_path, f"{count}", runs[:count])
        began = time.process_time()
        done = calibrate([file], Setting(), CATALOG)
        spent.append(time.process_time() - began)
        (engine,) = done.engines
        assert len(engine.fitted.fit.part("decode step").runs) == count
    assert spent[1] < 8 * spent[0] + 0.5
    assert spent[0] < 5


def test_files_of_a_sweep_that_are_called_alike_each_have_their_digest(tmp_path):
    for i, batch in enumerate((8, 32, 128)):
        written(tmp_path / f"BENCH[{i}]", "run=0", Engine().run("decode", 1024, 256, batch))
    found = calibrate([tmp_path], Setting(), CATALOG).calibration.provenance.digests
    assert list(found) == [str(tmp_path / f"BENCH[{i}]" / "run=0.json") for i in range(3)]
    assert len(set(found.values())) == 3
