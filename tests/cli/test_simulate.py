"""`disaggc simulate`: modes side by side, loads, sweeps, diagnostics, exit codes, the JSON that programs read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from disaggc.cli.loads import parse_bench, parse_sweep
from disaggc.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "schemas" / "simulate.v1.json").read_text())
SPEC = """
version: 1
cluster:
  fabric: {type: infiniband, speed_per_nic: 200Gbit}
  nodes:
    h100:
      hosts: {a: 10.0.0.1, b: 10.0.0.2}
      accelerator: {type: h100-sxm, per_node: 8}
services:
  chat:
    model: {id: Qwen/Qwen3-32B}
    workload:
      talk: {input_tokens: 2048, output_tokens: 256, rate: 4/s, objectives: {ttft_p90: 2s, e2e_p50: 30s}}
    engine: {vllm: 0.33.0, image: example.org/vllm@sha256:0000000000000000000000000000000000000000000000000000000000000000,
             command: /opt/vllm/bin/vllm, settings: {max-model-len: 12288}}
    constraints: {prefill: {tp: [4]}, decode: {tp: [4]}}
    proxy: {image: example.org/disaggc@sha256:0000000000000000000000000000000000000000000000000000000000000000}
targets: {systemd: {ssh_user: ops, run_as: vllm}}
target: systemd
"""
TRACE = "timestamp,input_tokens,output_tokens,workload\n" + "".join(
    f"{i * 0.5},{500 + 7 * i},{20 + i},{'talk' if i % 3 else 'other'}\n" for i in range(60)
)


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "disaggc.yaml"
    path.write_text(SPEC)
    return path


def run(capsys, *arguments):
    code = main(["simulate", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def document(capsys, *arguments):
    code, out, _ = run(capsys, *arguments, "--format", "json")
    found = json.loads(out)
    jsonschema.validate(found, SCHEMA)
    return code, found


def test_several_modes_in_one_call(capsys, spec):
    code, found = document(capsys, spec, "--mode", "1p3d", "--mode", "colocated", "--requests", 200)
    assert code == 0
    assert [r["mode"] for r in found["runs"]] == ["1P3D", "colocated"]
    first, second = found["runs"]
    assert first["ratio"] == {"prefill": 1, "decode": 3}
    assert second["ratio"] is None
    for one in found["runs"]:
        talk = one["classes"]["talk"]
        assert (talk["requests"], talk["failed"]) == (200, 0)
        assert 0 < talk["ttft_ms"]["p50"] <= talk["ttft_ms"]["p99"] < talk["e2e_ms"]["p50"]
        assert 0 < talk["itl_ms"]["p50"] <= talk["itl_ms"]["p99"]
        assert one["total_tok_per_s"] == pytest.approx(one["output_tok_per_s"] * 9, rel=1e-3)
        assert one["seed"] == 1
        assert one["basis"] == "prior"
    assert first["utilisation"].keys() == {"prefill", "decode"}


def test_the_table_compares_and_shows_pools_over_time(capsys, spec):
    code, out, err = run(capsys, spec, "--mode", "2P2D", "--mode", "colocated", "--requests", 200)
    assert code == 0
    assert "\x1b" not in out
    assert "2P2D" in out
    assert "4 colocated" in out
    assert "2 x prefill tp4" in out
    assert "\r" not in err  # no progress bar where stderr is no terminal


def test_the_plan_is_the_default_and_a_seed_repeats(capsys, spec):
    code, found = document(capsys, spec, "--requests", 100, "--seed", 5)
    _, again = document(capsys, spec, "--requests", 100, "--seed", 5)
    _, other = document(capsys, spec, "--requests", 100, "--seed", 6)
    assert code == 0
    assert found["runs"] == again["runs"]
    assert found["runs"] != other["runs"]
    assert found["runs"][0]["mode"] == "plan"


def test_a_bench_run_replaces_the_classes(capsys, spec):
    _, found = document(capsys, spec, "--mode", "2P2D", "--bench", "1k/128/16/2", "--requests", 64)
    (one,) = found["runs"]
    assert one["load"] == {
        "kind": "bench",
        "requests": 64,
        "concurrency": 16,
        "rate": 2,
        "left_out": None,
    }
    assert one["classes"].keys() == {"bench"}
    assert one["duration_s"] >= 32


def test_sweeps(capsys, spec):
    _, ratios = document(capsys, spec, "--sweep", "ratio", "--requests", 60)
    assert [r["mode"] for r in ratios["runs"]] == ["1P3D", "2P2D", "3P1D", "colocated"]
    _, caps = document(
        capsys,
        spec,
        "--mode",
        "2P2D",
        "--bench",
        "2k/128",
        "--sweep",
        "concurrency=1,8,64",
        "--requests",
        128,
    )
    assert [r["load"]["concurrency"] for r in caps["runs"]] == [1, 8, 64]
    served = [r["total_tok_per_s"] for r in caps["runs"]]
    assert served == sorted(served)


def test_a_range_brackets_the_run(capsys, spec):
    _, found = document(capsys, spec, "--mode", "2P2D", "--bench", "2k/128/32", "--range", "--requests", 128)
    (one,) = found["runs"]
    span = one["ranges"]["output_tok_per_s"]
    assert span["low"] < one["output_tok_per_s"] < span["high"]
    bench = one["classes"]["bench"]
    for metric in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"):
        for figure, value in bench[metric].items():
            span = one["ranges"][f"classes.bench.{metric}.{figure}"]
            assert span["low"] <= value <= span["high"], (metric, figure)
            assert span["low"] < span["high"]
    assert {"req_per_s", "goodput_req_per_s", "duration_s", "utilisation.prefill"} <= one["ranges"].keys()
    _, plain = document(capsys, spec, "--mode", "2P2D", "--bench", "2k/128/32", "--requests", 128)
    assert plain["runs"][0]["ranges"] == {}


def test_every_number_of_the_table_gets_its_range(capsys, spec):
    wanted = (spec, "--bench", "2k/128/32", "--requests", 128, "--mode", "2P2D", "--mode", "colocated")
    _, out, _ = run(capsys, *wanted, "--range")
    lines = out.splitlines()
    head = next(line for line in lines if "ttft p50" in line)
    rows = {line.split()[0]: line for line in lines if line.strip().startswith(("low ", "high "))}
    assert [line.split()[0] for line in lines if line.startswith("    ") and "tok" not in line][:4] == [
        "low", "high", "low", "high",
    ]  # fmt: skip
    for column in ("ttft p50", "itl p50", "e2e p50", "output tok/s", "goodput"):
        at = head.index(column)
        low, high = (rows[end][at:].split("  ")[0] for end in ("low", "high"))
        assert low, column
        assert low != high, column
    _, plain, _ = run(capsys, *wanted)
    assert "low" not in plain


def test_a_ramp_and_uneven_lengths(capsys, spec):
    common = (spec, "--mode", "2P2D", "--bench", "1k/128", "--requests", 300)
    _, even = document(capsys, spec, "--mode", "2P2D", "--bench", "1k/128/inf/8", "--requests", 300)
    _, ramp = document(capsys, *common, "--ramp", "2:14")
    _, steep = document(capsys, *common, "--ramp", "2:14:exponential")
    spans = [found["runs"][0]["duration_s"] for found in (even, ramp, steep)]
    assert spans[0] == pytest.approx(300 / 8, rel=0.1)
    assert spans[0] < spans[1] < spans[2], "slow starts cost time"
    assert ramp["runs"][0]["load"]["rate"] is None
    _, whole = document(capsys, *common)
    _, uneven = document(capsys, *common, "--jitter", 0.5)
    served = [f["runs"][0]["total_tok_per_s"] * f["runs"][0]["duration_s"] for f in (whole, uneven)]
    assert served[0] == pytest.approx(300 * 1152, rel=1e-3)
    assert served[1] == pytest.approx(300 * 1152 * 0.75, rel=0.05)


def test_what_no_request_saw_is_no_figure(capsys, spec):
    code, out, _ = run(capsys, spec, "--mode", "2P2D", "--bench", "16k/128/4", "--requests", 20)
    assert code == 0
    row = next(line for line in out.splitlines() if line.strip().startswith("2P2D"))
    assert row.split()[:4] == ["2P2D", "20", "20", "-"]
    _, out, _ = run(capsys, spec, "--mode", "2P2D", "--bench", "16k/128/4", "--requests", 20, "--range")
    ends = [line.split() for line in out.splitlines() if line.split()[:1] in (["low"], ["high"])]
    assert [end[:4] for end in ends] == [["low", "20", "-", "-"], ["high", "20", "-", "-"]]
    assert "20 of 20 requests longer than the context limit" in out


def test_prompts_below_the_break_even_are_told(capsys, spec):
    _, out, _ = run(capsys, spec, "--mode", "plan", "--bench", "8/64/4", "--requests", 20)
    told = "20 of 20 prompts computed by decode, too short to hand over"
    assert (told in out) is ("P" in out.split("plan (")[1].split(")")[0])
    _, out, _ = run(capsys, spec, "--mode", "2P2D", "--bench", "8/64/4", "--requests", 20)
    assert told in out, "no block of KV is whole"
    _, out, _ = run(capsys, spec, "--mode", "2P2D", "--bench", "2k/64/4", "--requests", 20)
    assert "computed by decode" not in out


def test_runs_of_a_sweep_are_told_apart_over_time(capsys, spec):
    _, out, _ = run(
        capsys, spec, "--mode", "2P2D", "--bench", "2k/128", "--sweep", "concurrency=4,8", "--requests", 40
    )
    assert "2P2D, concurrency 4 over" in out
    assert "2P2D, concurrency 8 over" in out


def test_plan_explain_and_simulate_use_one_word_for_one_thing(capsys, spec):
    """Prefill is busy for a share of the time, of decode's slots a share is in use, capacity is what is served alone."""
    main(["explain", str(spec)])
    explained = capsys.readouterr().out
    main(["simulate", str(spec), "--requests", "60"])
    simulated = capsys.readouterr().out
    assert re.search(r"busy +\d+% of the time", explained)
    assert re.search(r"slots +\d+% in use", explained)
    assert re.search(r"decode alone could serve [\d.]+/s: load \d+%", explained)
    assert re.search(r"P busy \d+%, D slots \d+%", simulated)
    assert re.search(r"x decode tp\d+ +slots \d+%", simulated)
    assert "of capacity" not in explained + simulated


WINDOWS = "0,0,0,,0,0\n600,0.5,1.0,Gamma,1.0,2.0\n1200,2,3.0,Weibull,0.5,0.25\n1800,0,0,,0,0\n"
LENGTHS = json.dumps({
    "0": {"input_tokens": "{100: 0.5, 300: 0.5}", "output_tokens": "{20: 1.0}"},
    "1200": {"input_tokens": "{1000: 1.0}", "output_tokens": "{40: 0.25, 80: 0.75}"},
    "1800": {"input_tokens": "{}", "output_tokens": "{}"},
})  # fmt: skip


def test_requests_are_drawn_from_a_client_s_parameters(capsys, spec, tmp_path):
    trace = tmp_path / "chunk-7-trace.csv"
    trace.write_text(WINDOWS)
    (tmp_path / "chunk-7-dataset.json").write_text(LENGTHS)
    code, found = document(capsys, spec, "--mode", "2P2D", "--trace", trace)
    assert code == 0
    (one,) = found["runs"]
    assert one["classes"]["talk"]["requests"] == pytest.approx(600 * 0.5 + 600 * 2, rel=0.25)
    assert one["classes"]["talk"]["failed"] == 0
    assert 1000 < one["duration_s"] < 1300
    _, few = document(capsys, spec, "--mode", "2P2D", "--trace", trace, "--requests", 50)
    assert few["runs"][0]["classes"]["talk"]["requests"] == 50
    cut = "the first 50 requests of a ServeGen client that sends more: `--requests` draws another number"
    assert (one["load"]["left_out"], few["runs"][0]["load"]["left_out"]) == (None, cut)
    assert main(["simulate", str(spec), "--mode", "2P2D", "--trace", str(trace), "--requests", "50"]) == 0
    assert f"  {cut}\n" in capsys.readouterr().out
    _, other = document(capsys, spec, "--mode", "2P2D", "--trace", trace, "--seed", 2)
    assert other["runs"][0]["duration_s"] != one["duration_s"]


def test_a_client_s_arrivals_without_its_lengths_say_what_is_missing(capsys, spec, tmp_path):
    trace = tmp_path / "chunk-7-trace.csv"
    trace.write_text(WINDOWS)
    code, found = document(capsys, spec, "--mode", "2P2D", "--trace", trace)
    assert code == 1
    (problem,) = [d for d in found["diagnostics"] if d["severity"] == "error"]
    assert "`chunk-7-dataset.json`" in problem["message"]
    assert "--bench" in problem["help"]


def test_a_trace_with_its_classes(capsys, spec, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    code, found = document(capsys, spec, "--mode", "2P2D", "--trace", trace)
    assert code == 0
    (one,) = found["runs"]
    assert {name: c["requests"] for name, c in one["classes"].items()} == {"talk": 40, "other": 20}
    assert 29.5 < one["duration_s"] < 60


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("a,b\n1,2\n", 1, "no column of input tokens"),
        ("timestamp,input_tokens,output_tokens\n1,2,3\n2,many,3\n", 3, "`many`"),
        ("timestamp,input_tokens,output_tokens\n1,2,3\nyesterday,2,3\n", 3, "not a time"),
        ("timestamp,input_tokens,output_tokens\n1,-2,3\n", 2, "-2 tokens"),
        ('{"timestamp": 1, "input_length": 3, "output_length": 4}\n{"timestamp": 1,\n', 2, "not JSON"),
        ("timestamp,input_tokens,output_tokens\n", 1, "no requests"),
        ("timestamp,input_tokens,output_tokens\n1,2,3\n1,000,2,3\n", 3, "4 fields, the header 3"),
        ("timestamp,input_tokens,output_tokens\n1,2\n", 2, "`output_tokens` is absent"),
        ("timestamp,input_tokens,output_tokens\n1700000000000,2,3\n", 2, "milliseconds"),
        ("timestamp,input_tokens,output_tokens\n0,2,3\n9e10,2,3\n", 1, "years to arrive"),
        ("timestamp,input_tokens,input_tokens,output_tokens\n1,2,3,4\n", 1, "stands twice"),
        ("timestamp;input_tokens;output_tokens\n1;2,5;3\n", 2, "`2,5`"),
        ("timestamp,input_tokens,output_tokens,class\n1,2,3,\x1b[31m\n", 2, "cannot be shown"),
        (f"timestamp,input_tokens,output_tokens\n1,2,3\n1,{'9' * 200_000},3\n", 3, "longer than any number"),
        ('[{"timestamp": 1, "input_length": 3, "output_length": 4}]', 1, "JSON list"),
        ('{"timestamp": 1, "input_length": 3, "output_length": 4, "hash_ids": "x"}\n', 1, "`hash_ids`"),
    ],
)
def test_a_bad_trace_is_named_with_its_line(capsys, spec, tmp_path, text, line, words):
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    code, found = document(capsys, spec, "--mode", "2P2D", "--trace", trace)
    assert code == 1
    assert found["runs"] == []
    (problem,) = [d for d in found["diagnostics"] if d["severity"] == "error"]
    assert words in problem["message"]
    if problem["code"] == "DGC101":
        assert (problem["file"], problem["line"]) == (str(trace), line)
    else:
        assert problem["code"] == "DGC550"


@pytest.mark.parametrize(
    "change", [("\n", "\r\n"), ("\n", "\r"), (",", ";"), (",", "\t"), ("timestamp", "\ufefftimestamp")]
)
def test_line_ends_separators_and_marks_of_other_machines_change_nothing(capsys, spec, tmp_path, change):
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    _, plain = document(capsys, spec, "--mode", "2P2D", "--trace", trace)
    trace.write_bytes(TRACE.replace(*change).encode())
    code, found = document(capsys, spec, "--mode", "2P2D", "--trace", trace)
    assert code == 0
    assert found["runs"] == plain["runs"]


def test_times_with_offsets_are_moments(capsys, spec, tmp_path):
    trace = tmp_path / "trace.csv"
    head = "timestamp,input_tokens,output_tokens\n"
    trace.write_text(head + "2023-11-16T18:15:46Z,100,50\n2023-11-16T20:15:50+02:00,200,60\n")
    code, found = document(capsys, spec, "--mode", "2P2D", "--trace", trace)
    assert code == 0
    assert 4 < found["runs"][0]["duration_s"] < 20


def test_requests_that_take_decades_to_arrive_are_refused_not_simulated(capsys, spec):
    code, _, err = run(capsys, spec, "--mode", "2P2D", "--bench", "1k/1k/4/1e-9", "--requests", "3")
    assert code == 1
    assert "3 requests of `bench` take 95 years to arrive" in err


def test_a_missing_trace_and_a_mode_that_does_not_fit(capsys, spec, tmp_path):
    code, _, err = run(capsys, spec, "--trace", tmp_path / "none.csv", "--mode", "2P2D")
    assert code == 1
    assert "does not exist" in err
    code, _, err = run(capsys, spec, "--mode", "3P3D")
    assert code == 1
    assert "3P3D does not fit the cluster: 2 x 8 h100-sxm" in err
    code, _, err = run(capsys, spec, "--service", "other")
    assert code == 1
    assert "`chat`" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--mode", "2Q3D"],
        ["--mode", "0P1D"],
        ["--bench", "1024"],
        ["--bench", "1k/zero"],
        ["--bench", "1k/1k/1.5"],
        ["--bench", "1k/1k/1/-2"],
        ["--bench", "1k/1k/nan"],
        ["--sweep", "price"],
        ["--sweep", "concurrency="],
        ["--sweep", "concurrency=1,two"],
        ["--sweep", "rate=inf"],
        ["--sweep", "ratio", "--mode", "plan"],
        ["--trace", "a.csv", "--bench", "1k/1k"],
        ["--trace", "a.csv", "--sweep", "rate=1"],
        ["--requests", "0"],
        ["--ramp", "1:20"],
        ["--jitter", "0.5"],
        ["--bench", "1k/1k", "--ramp", "1"],
        ["--bench", "1k/1k", "--ramp", "1:inf"],
        ["--bench", "1k/1k", "--ramp", "1:2:cubic"],
        ["--bench", "1k/1k/8/2", "--ramp", "1:20"],
        ["--bench", "1k/1k", "--ramp", "1:20", "--sweep", "rate=1,2"],
        ["--fail", "decode/0"],
        ["--fail", "decode/0@soon+1min"],
        ["--fail", "decode/0@-1s+1min"],
        ["--fail", "decode/0@1s+0s"],
        ["--fail", "decode/0@1s+9999999h"],
        ["--fail", "decode/0@2min+1min", "--fail", "decode/0@1min+2min"],
    ],
)
def test_wrong_usage(capsys, spec, arguments):
    code, out, err = run(capsys, spec, *arguments)
    assert code == 64
    assert out == ""
    assert err.startswith("error: ")


def test_a_replica_that_fails_on_the_way(capsys, spec):
    common = (spec, "--mode", "2P2D", "--bench", "2k/256/64", "--requests", 400)
    _, calm = document(capsys, *common)
    _, hit = document(capsys, *common, "--fail", "decode/1@5s+20s")
    assert calm["runs"][0]["classes"]["bench"]["failed"] == 0
    lost = hit["runs"][0]["classes"]["bench"]
    assert lost["losses"] == {"replica-failed": lost["failed"]}
    assert 0 < lost["failed"] <= 64
    assert min(m["up"] for m in hit["runs"][0]["pools"][1]["timeline"]) == 1
    code, _, err = run(capsys, *common, "--fail", "decode/2@5s+20s")
    assert code == 1
    assert "`--fail decode/2`: `--mode 2P2D` has no such replica" in err


def test_a_failure_after_the_last_answer_is_said_and_changes_nothing(capsys, spec):
    common = (spec, "--mode", "2P2D", "--bench", "2k/256/64", "--requests", 100)
    _, calm = document(capsys, *common)
    _, late = document(capsys, *common, "--fail", "decode/1@2h+20s")
    assert late["runs"] == calm["runs"]
    (found,) = [one for one in late["diagnostics"] if one["code"] == "DGC551"]
    assert found["severity"] == "warning"
    assert "`--fail decode/1`: nothing fails, as the last answer of `--mode 2P2D` is at" in found["message"]
    assert found["message"].endswith("before 2.0 h")
    code, out, err = run(capsys, *common, "--sweep", "concurrency=8,16", "--fail", "decode/1@2h+20s")
    assert code == 0
    assert out
    assert err.count("DGC551") == 1
    assert "and so in 1 more of 2 runs" in err
    assert "DGC551" not in run(capsys, *common, "--fail", "decode/1@1s+20s")[2]


def test_what_bench_and_sweep_say():
    found = parse_bench("8k/1024/480/2.5")
    assert (found.isl, found.osl, found.concurrency, found.rate) == (8192, 1024, 480, 2.5)
    assert parse_bench("1/2/inf/4").concurrency == float("inf")
    assert parse_sweep("rate=0.5,2").values == (0.5, 2.0)


def test_errors_of_the_spec_stop_before_anything_runs(capsys, tmp_path):
    path = tmp_path / "disaggc.yaml"
    path.write_text(SPEC.replace("Qwen/Qwen3-32B", "Nobody/Knows"))
    code, found = document(capsys, path)
    assert code == 1
    assert found["runs"] == []
    assert found["diagnostics"][0]["code"] == "DGC202"


def test_every_layout_is_compared_behind_the_limits_a_plan_of_it_would_have(capsys):
    """Counted with all it will ever hold, the load of the five nodes would be refused by half as 2P3D."""
    example = ROOT / "examples" / "deepseek-r1-mi300x" / "disaggc.yaml"
    modes = ("--mode", "1P4D", "--mode", "2P3D", "--mode", "colocated")
    _, found = document(capsys, example, *modes, "--bench", "1k/8k/480", "--requests", 960)
    assert [one["classes"]["bench"]["failed"] for one in found["runs"]] == [0, 0, 0]
    _, wide = document(
        capsys,
        example,
        "--mode",
        "1P4D",
        "--bench",
        "1k/1k/64",
        "--sweep",
        "concurrency=64,600",
        "--requests",
        600,
    )
    assert [one["classes"]["bench"]["failed"] for one in wide["runs"]] == [0, 0]


def test_a_deployed_proxy_keeps_its_limits_whatever_is_offered(capsys, spec):
    crowd = (spec, "--bench", "4k/512/4000", "--requests", 4000)
    _, planned = document(capsys, *crowd, "--mode", "plan")
    _, open_door = document(capsys, *crowd, "--mode", "plan", "--no-admission")
    refused = planned["runs"][0]["classes"]["bench"]["losses"].get("refused", 0)
    assert refused > 0
    assert "refused" not in open_door["runs"][0]["classes"]["bench"]["losses"]
