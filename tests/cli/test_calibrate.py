from __future__ import annotations

import json
import shlex

import pytest
import yaml

from disaggc.cli.main import main
from disaggc.perf.calibration.schedule import schedule
from tests.perf.calibration.runs import Engine, written


@pytest.fixture
def results(tmp_path):
    for i, run in enumerate(schedule(16384, 256)):
        written(tmp_path / "runs", f"{i}", Engine().run(run.kind, run.isl, run.osl, run.concurrency))
    return tmp_path / "runs"


def test_a_calibration_is_written_and_a_plan_picks_it_up(results, tmp_path, capsys):
    example = tmp_path / "spec"
    assert main(["init", str(example), "--example", "deepseek-r1-mi300x", "-q"]) == 0
    assert main(["calibrate", str(results), "--out", str(example / "mine.yaml")]) == 0
    said = capsys.readouterr().err
    assert "decode step: 7 runs" in said
    assert "calibration: mine.yaml" in said
    spec = example / "disaggc.yaml"
    spec.write_text(spec.read_text() + "calibration: mine.yaml\n")
    assert main(["plan", str(spec), "--refresh=false"]) == 0
    assert "basis: calibrated" in capsys.readouterr().out


def test_the_report_as_json(results, capsys):
    assert main(["calibrate", str(results), "--format", "json", "-q"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "disaggc.calibrate/v1"
    (engine,) = document["engines"]
    assert {part["title"] for part in engine["parts"]} == {"decode step", "prefill", "kv transfer"}


def test_the_bench_schedule_of_a_spec_is_thirteen_commands(tmp_path, capsys):
    assert main(["init", str(tmp_path / "spec"), "--example", "deepseek-r1-mi300x", "-q"]) == 0
    capsys.readouterr()
    assert main(["calibrate", "--plan", str(tmp_path / "spec" / "disaggc.yaml")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert len(lines) == 13
    assert all(line.startswith("vllm bench serve --model deepseek-ai/DeepSeek-R1 ") for line in lines)
    assert all(("PROXY" if "disaggc_run=pd" in line else "ENGINE") in line for line in lines)
    assert not any("disaggc_kv_dtype" in line for line in lines)


def test_the_runs_of_a_plan_carry_the_precision_of_its_cache(tmp_path, capsys):
    assert main(["init", str(tmp_path / "spec"), "--example", "deepseek-r1-mi300x", "-q"]) == 0
    spec = tmp_path / "spec" / "disaggc.yaml"
    known = spec.read_text()
    spec.write_text(known.replace("max-model-len: 16384", "max-model-len: 16384, kv-cache-dtype: fp8"))
    assert spec.read_text() != known
    capsys.readouterr()
    assert main(["calibrate", "--plan", str(spec)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert lines
    assert all("disaggc_kv_dtype=fp8" in line for line in lines)


def planned_benches(spec, capsys):
    assert main(["calibrate", "--plan", str(spec), "--format", "json"]) == 0
    bench = json.loads(capsys.readouterr().out)
    assert main(["plan", str(spec), "--refresh=false", "--format", "json"]) == 0
    return bench, json.loads(capsys.readouterr().out)


def test_the_bench_schedule_as_json_has_the_shapes_of_the_plan_and_no_two_results_in_one_file(
    tmp_path, capsys
):
    assert main(["init", str(tmp_path / "spec"), "--example", "two-services", "-q"]) == 0
    capsys.readouterr()
    bench, plan = planned_benches(tmp_path / "spec" / "disaggc.yaml", capsys)
    assert bench["schema"] == "disaggc.bench-plan/v1"
    shapes = {
        (name, pool["accelerator"], json.dumps(pool["shape"]))
        for name, service in plan["services"].items()
        for pool in service["pools"]
    }
    assert len({name for name, *_ in shapes}) == 2
    benched = {(e["service"], e["accelerator"], json.dumps(e["shape"])) for e in bench["engines"]}
    assert benched == shapes
    files = [run["result_file"] for engine in bench["engines"] for run in engine["runs"]]
    assert len(files) == len(set(files))
    for engine in bench["engines"]:
        assert engine["seconds"]["low"] < engine["seconds"]["value"] < engine["seconds"]["high"]
        assert engine["seconds"]["value"] == pytest.approx(
            sum(r["seconds"]["value"] for r in engine["runs"]), rel=1e-3
        )
        assert all(run["result_file"] in run["command"] for run in engine["runs"])


def said_in(command):
    """The metadata of a bench command, as a result of it carries them."""
    words = shlex.split(command)
    pairs = words[words.index("--metadata") + 1 : words.index("--base-url")]
    return dict(pair.split("=", 1) for pair in pairs)


@pytest.mark.parametrize("given", [13, 11, 7, 5, 1])
def test_the_next_run_is_one_that_plan_prints_for_the_same_spec_and_was_not_made(tmp_path, capsys, given):
    assert main(["init", str(tmp_path / "spec"), "-q"]) == 0
    capsys.readouterr()
    main(["calibrate", "--plan", str(tmp_path / "spec" / "disaggc.yaml"), "--format", "json", "-q"])
    (engine,) = json.loads(capsys.readouterr().out)["engines"]
    runs = [
        (run["kind"], run["input_tokens"], run["output_tokens"], run["concurrency"]) for run in engine["runs"]
    ]
    for i, (run, timed) in enumerate(zip(runs[:given], engine["runs"], strict=False)):
        written(tmp_path / "runs", f"{i}", Engine().run(*run) | said_in(timed["command"]))
    assert main(["calibrate", str(tmp_path / "runs"), "--format", "json", "-q"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["engines"]
    if given == 13:
        assert found["next_run"] is None
        return
    following = found["next_run"]
    assert following["of_spec"]
    names = ("kind", "input_tokens", "output_tokens", "concurrency")
    assert tuple(following[name] for name in names) in runs[given:]
    main(["calibrate", str(tmp_path / "runs"), "--out", str(tmp_path / "c.yaml")])
    report = capsys.readouterr().err
    assert "(`disaggc calibrate --plan` of their spec prints it)" in report
    assert report.startswith("1 run read\n" if given == 1 else f"{given} runs read\n")
    assert " 1 runs" not in report


def test_engines_of_two_shapes_get_the_runs_of_their_roles(tmp_path, capsys):
    assert main(["init", str(tmp_path / "spec"), "--example", "deepseek-r1-mi300x", "-q"]) == 0
    capsys.readouterr()
    spec = tmp_path / "spec" / "disaggc.yaml"
    both = tmp_path / "both.yaml"
    document = yaml.safe_load(spec.read_text())
    document["services"]["chat"].setdefault("constraints", {}).update(
        {"mode": "disaggregated", "prefill": {"tp": [8]}, "decode": {"tp": [4], "dp": [2]}}
    )
    both.write_text(yaml.safe_dump(document))
    bench, _ = planned_benches(both, capsys)
    kinds = {tuple(e["roles"]): {r["kind"] for r in e["runs"]} for e in bench["engines"]}
    assert kinds == {("prefill",): {"prefill", "pd"}, ("decode",): {"decode", "mixed"}}
    (prefill,) = [e for e in bench["engines"] if e["roles"] == ["prefill"]]
    assert prefill["decode_shape"] != prefill["shape"]
    assert {r["output_tokens"] for r in prefill["runs"] if r["kind"] == "pd"} == {8}


@pytest.mark.parametrize("out", ["absent/x.yaml", "."])
def test_a_file_that_cannot_be_written_is_one_line_and_the_fit_is_on_stdout(results, tmp_path, capsys, out):
    assert main(["calibrate", str(results), "--out", str(tmp_path / out)]) == 1
    said = capsys.readouterr()
    assert "internal error" not in said.err
    assert [line for line in said.err.splitlines() if line.startswith("error: ")] == [
        said.err.splitlines()[-1]
    ]
    assert "decode_fixed_s" in said.out


def test_everything_left_aside_is_listed(tmp_path, capsys):
    for i in range(20):
        (tmp_path / f"{i:02}.json").write_text("[]")
    assert main(["calibrate", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert all(f"{i:02}.json" in said for i in range(20))
    assert "more" not in said


def test_nothing_to_fit_is_an_error_without_a_file(tmp_path, capsys):
    (tmp_path / "x.json").write_text("{}")
    assert main(["calibrate", str(tmp_path / "x.json"), "--out", str(tmp_path / "out.yaml")]) == 1
    assert not (tmp_path / "out.yaml").exists()
    assert "nothing could be fitted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give result files"),
        (["x.json", "--kind", "odd"], "no kind `odd`"),
        (["x.json", "--shape", "foo"], "`foo` is no shape"),
        (["x.json", "--accelerator", "nope"], "no accelerator `nope`"),
        (["x.json", "--plan", "spec.yaml"], "takes no results"),
        (["--plan", "spec.yaml", "--shape", "tp8"], "takes no results"),
        (["--plan", "spec.yaml", "--out", "x"], "takes no results"),
        (["x.json", "--out", ""], "the path is empty"),
        (["x.json", "--model", ""], "is empty"),
        (["x.json", "--kv-tokens", "99999999999999999999"], "less than or equal"),
    ],
)
def test_wrong_usage(arguments, says, capsys):
    assert main(["calibrate", *arguments]) == 64
    assert says in " ".join(capsys.readouterr().err.split())


def test_an_empty_path_is_an_unset_variable_and_not_the_working_directory(capsys):
    assert main(["calibrate", ""]) == 64
    assert "the path is empty" in capsys.readouterr().err


def test_a_bad_calibration_file_fails_validate_at_its_place(tmp_path, capsys):
    assert main(["init", str(tmp_path), "--example", "deepseek-r1-mi300x", "-q"]) == 0
    capsys.readouterr()
    spec, file = tmp_path / "disaggc.yaml", tmp_path / "mine.yaml"
    spec.write_text(spec.read_text() + "calibration: mine.yaml\n")
    file.write_text("version: 1\nprovenance: {tool: x}\nentries:\n  - {model: m, accelerator: x, shape: 3}\n")
    assert main(["validate", str(spec), "--format", "json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert (found["code"], found["file"], found["line"], found["column"]) == ("DGC206", str(file), 4, 39)
    assert main(["plan", str(spec), "--refresh=false", "--format", "json"]) == 1
    assert [d["line"] for d in json.loads(capsys.readouterr().out)["diagnostics"]] == [4]


def test_an_engine_s_log_may_say_a_little_more_than_the_facts_leave(tmp_path, capsys):
    assert main(["init", str(tmp_path), "--example", "deepseek-r1-mi300x", "-q"]) == 0
    spec, file = tmp_path / "disaggc.yaml", tmp_path / "mine.yaml"
    spec.write_text(spec.read_text() + "calibration: mine.yaml\n")
    file.write_text(
        "version: 1\nprovenance: {tool: x}\nentries:\n  - model: deepseek-ai/DeepSeek-R1\n    accelerator: mi300x\n"
        "    shape: {tp: 8}\n    memory: {kv_tokens: 1500000}\n"
    )
    code = main(["plan", str(spec), "--refresh=false"])
    assert code == 0, capsys.readouterr().err
