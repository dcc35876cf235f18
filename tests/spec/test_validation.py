"""One clear finding for each wrong value, at its own place, with what to write instead."""

from __future__ import annotations

import pytest

from tests.spec.loading import changed, loaded, said

RAG = "        rate: 2/s\n"
ENGINE = "      vllm: 0.33.0\n"
GROUP = "      accelerator: {type: mi300x, per_node: 8}\n"

CASES = [
    # edits, place, words of the message, words of the help
    (("speed_per_nic: 200Gbit", "speed_per_nic: 200Gb"), "DGC113 3:45", "bits or bytes", "200Gbit"),
    (("speed_per_nic: 200Gbit", "speed_per_nic: 200"), "DGC113 3:45", "no unit", "200Gbit"),
    (("speed_per_nic: 200Gbit", "speed_per_nic: fast"), "DGC113 3:45", "start with a number", "200Gbit"),
    (("speed_per_nic: 200Gbit", "speed_per_nic: 25GB"), "DGC113 3:45", "a speed is wanted", "25GB/s"),
    (("speed_per_nic: 200Gbit", "speed_per_nic: 0Gbit"), "DGC113 3:45", "more than 0", None),
    (("speed_per_nic: 200Gbit", "speed_per_nic: true"), "DGC113 3:45", "`true`", None),
    (("speed_per_nic: 200Gbit", "speed_per_nic: {}"), "DGC113 3:30", "a mapping", None),
    (("speed_per_nic: 200Gbit", "speed_per_nic: "), "DGC113 3:30", "is empty", None),
    (("type: infiniband", "type: infinband"), "DGC114 3:18", "`efa`", "did you mean `infiniband`?"),
    (("type: infiniband", "type: 7"), "DGC114 3:18", "`7`", None),
    (("version: 1", "version: 2"), "DGC114 1:10", "`1` is wanted", None),
    (("version: 1", 'version: "1"'), "DGC114 1:10", "`1` is wanted", None),
    (("per_node: 8", "per_node: 0"), "DGC114 7:45", "at least 1", None),
    (("per_node: 8", "per_node: eight"), "DGC112 7:45", "a whole number", None),
    (("per_node: 8", 'per_node: "8"'), "DGC112 7:45", "the text `8`", "without quotes"),
    (("per_node: 8", "per_node: 8.0"), "DGC112 7:45", "a whole number", "write `8`"),
    (("per_node: 8", "per_nodes: 8"), "DGC110 7:35", "`per_nodes`", "did you mean `per_node`?"),
    (("per_node: 8", "devices: 8"), "DGC111 7:7", "no `per_node`", "add `per_node:`"),
    (("hosts: {n1: 10.0.0.1, n2: 10.0.0.2}", "hosts: [n1, n2]"), "DGC112 6:7", "a list, a mapping", None),
    (("n1: 10.0.0.1", "n1: 10.0.0.300"), "DGC114 6:19", "no IP address", None),
    (("n1: 10.0.0.1", "n1: 10.0"), "DGC112 6:19", "the number `10.0`", 'quote it: `"10.0"`'),
    (("n1: 10.0.0.1", "n1: fe80::zz"), "DGC114 6:19", "no IP address", None),
    (("n1: 10.0.0.1", "_n1: 10.0.0.1"), "DGC114 6:15", "the name `_n1`", "a host name"),
    (("n1: 10.0.0.1", "1: 10.0.0.1"), "DGC112 6:15", "the key `1`", 'write `"1"`'),
    (("  chat:", "  Chat:"), "DGC114 9:3", "the name `Chat`", "lower-case"),
    (("id: deepseek-ai/DeepSeek-R1", "id: ''"), "DGC114 10:17", "`id` is empty", None),
    (("id: deepseek-ai/DeepSeek-R1", "id: 5"), "DGC112 10:17", "the number `5`", 'quote it: `"5"`'),
    (("input_tokens: 1024", "input_tokens: 8K"), "DGC112 13:23", "the text `8K`", "`8192` or `8000`"),
    (("input_tokens: 1024", "input_tokens: 1e3"), "DGC112 13:23", "`1e3`", "write `1000`"),
    (("input_tokens: 1024", "input_tokens: 1_024"), "DGC112 13:23", "`1_024`", "write `1024`"),
    (("input_tokens: 1024", "input_tokens: -1"), "DGC114 13:23", "more than 0", None),
    (("input_tokens: 1024", "input_tokens: [1, 2]"), "DGC112 13:9", "`histogram`", None),
    (("input_tokens: 1024", "input_tokens: {}"), "DGC111 13:9", "no `mean`", "mean tokens"),
    (("input_tokens: 1024", "input_tokens: {mean: 5, p95: 9}"), "DGC110 13:33", "`p95`", "did you mean `p90`?"),
    (("input_tokens: 1024", "input_tokens: {trace: 5}"), "DGC112 13:31", "the number `5`", "quote it"),
    (("input_tokens: 1024", "input_tokens: {histogram: {}}"), "DGC114 13:24", "is empty", "at least one"),
    (("input_tokens: 1024", "input_tokens: {histogram: {a: 1}}"), "DGC112 13:36", "the key `a`", None),
    (("input_tokens: 1024", "input_tokens: {histogram: {5: x}}"), "DGC112 13:39", "`x`", None),
    (("input_tokens: 1024", "input_tokens: {histogram: {0: 1}}"), "DGC114 13:36", "more than 0", None),
    (("input_tokens: 1024", "input_tokens: 99999999"), "DGC114 13:23", "at most", None),
    ((RAG, RAG + "        prefix_hit: 130%\n"), "DGC113 16:21", "outside", "30%"),
    ((RAG, RAG + "        prefix_hit: 1.5\n"), "DGC113 16:21", "outside", "30%"),
    ((RAG, RAG + "        objectives: {ttft_p90: 10}\n"), "DGC113 16:32", "no unit", "`10s` or `10ms`"),
    ((RAG, RAG + "        objectives: {ttft_p95: 10s}\n"), "DGC110 16:22", "`ttft_p95`", "`ttft_p9"),
    ((RAG, "        rate: 2\n"), "DGC113 15:15", "no unit", "`2/s`"),
    ((RAG, "        rate: ${RATE}\n"), "DGC113 15:15", "start with a number", "`2/s`"),
    (("vllm: 0.33.0", "vllm: 0.33"), "DGC112 17:13", "the number `0.33`", "write `0.33.0`"),
    (("vllm: 0.33.0", "vllm: latest"), "DGC114 17:13", "malformed", "three parts"),
    ((RAG, RAG + "        objectives: {tpot_p99: 10s}\n"), "DGC110 16:22", "`tpot_p99`", "`itl_p99`"),
    ((ENGINE, ENGINE + "      max-model-len: 4\n"), "DGC110 18:7", "`max-model-len`", "`settings: {max-model-len"),
    ((ENGINE, ENGINE + "      settings: {enable-dbo: yes}\n"), "DGC104 18:30", "ambiguous", "write `true`"),
    ((ENGINE, ENGINE + "      settings: {--seed: 1}\n"), "DGC114 18:18", "`--seed`", "without leading dashes"),
    ((ENGINE, ENGINE + "      settings: {seed: [[[[[1]]]]]}\n"), "DGC112 18:18", "nests less deep", None),
    ((ENGINE, ENGINE + "      env: {A: 1}\n"), "DGC112 18:16", "the number `1`", 'quote it: `"1"`'),
    ((ENGINE, ENGINE + "      env: {A: no}\n"), None, "", None),
    ((ENGINE, ENGINE + "      env: {9A: x}\n"), "DGC114 18:13", "`9A`", "environment variable"),
    ((ENGINE, ENGINE + "      env: {A: {secrets: x}}\n"), "DGC110 18:17", "`secrets`", "`secret`"),
    ((ENGINE, ENGINE + "      connector: {lease: soon}\n"), "DGC113 18:26", "start with a number", "10s"),
    ((ENGINE, ENGINE + "      connector: {type: nixl_push}\n"), "DGC114 18:25", "`nixl_push`", "`nixl-push`"),
    ((ENGINE, ENGINE + "    proxy: {port: 70000}\n"), "DGC114 18:19", "at most 65,535", None),
    ((ENGINE, ENGINE + "    proxy: {api_key: {envs: A}}\n"), "DGC114 18:13", "no place of the key", "{env: NAME}"),
    ((ENGINE, ENGINE + "    proxy: {api_key: {env: A, file: /x}}\n"), "DGC115 18:31", "`file` cannot stand beside `env`", "one form"),
    (("input_tokens: 1024", "input_tokens: {mean: 5.0, trace: x}"), "DGC115 13:24", "`mean` cannot stand beside `trace`", "one form"),
    ((ENGINE, ENGINE + "    proxy: {api_key: secret}\n"), "DGC114 18:22", "no place of the key", "{env: NAME}"),
    ((ENGINE, ENGINE + "    rate: 3/s\n"), "DGC110 18:5", "`rate`", "`services.chat.workload.rag.rate`"),
    ((ENGINE, ENGINE + "    constraints: {prefill: {tp: 8}}\n"), "DGC112 18:33", "a list", "write `[8]`"),
    ((ENGINE, ENGINE + '    constraints: {prefill: {tp: [4, "8"]}}\n'), "DGC112 18:37", "`tp[1]`", "without quotes"),
    ((ENGINE, ENGINE + "    speculative: {method: ngram, tokens: 2}\n"), "DGC111 18:5", "no `acceptance`", "add `acc"),
    ((ENGINE, ENGINE + "optimise: cost\n"), "DGC110 18:1", "top of the document", "did you mean `optimize`?"),
    ((ENGINE, ENGINE + "targets: {kubernetes: {kube_version: 1.33}}\n"), "DGC112 18:38", "`1.33`", '`"1.33"`'),
    ((ENGINE, ENGINE + "targets: {kubernetes: {namespace: a_b}}\n"), "DGC114 18:35", "malformed", "label"),
    ((ENGINE, ENGINE + "targets: {kubernetes: {inference_pool: on}}\n"), "DGC112 18:40", "the text `on`", "write `true`"),
    ((ENGINE, ENGINE + "watch: {interval: 30}\n"), "DGC113 18:19", "no unit", "`30s`"),
    ((ENGINE, ENGINE + "calibration: [x]\n"), "DGC112 18:1", "a list", None),
    ((GROUP, GROUP + "      price: 24 usd/h\n"), "DGC113 8:14", "not a price", "USD/h"),
    ((GROUP, GROUP + "      nics: {per_node: 1, devices: mlx5_0}\n"), "DGC112 8:36", "a list", "[mlx5_0]"),
    (("    workload:\n", "    workload: {}\n    x:\n"), "DGC114 11:5", "`workload` is empty", "at least one"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "place", "words", "help_words"), [case for case in CASES if case[1]])
def test_a_wrong_value(edit: tuple[str, str], place: str, words: str, help_words: str | None) -> None:
    outcome = loaded(changed(edit))
    matching = [d for d, where in zip(outcome.diagnostics, said(outcome), strict=True) if where == place]
    assert len(matching) == 1, (said(outcome), outcome.diagnostics)
    if " x:" not in edit[1] and "devices: 8" not in edit[1] and "secrets" not in edit[1]:
        assert len(outcome.diagnostics) == 1, outcome.diagnostics
    assert words in matching[0].message
    if help_words is None:
        return
    assert matching[0].help is not None
    assert help_words in matching[0].help


@pytest.mark.parametrize("edit", [case[0] for case in CASES if case[1] is None])
def test_a_value_that_is_fine_after_all(edit: tuple[str, str]) -> None:
    assert loaded(changed(edit)).diagnostics == ()


def test_all_mistakes_of_a_run_come_together_in_order() -> None:
    text = changed(
        ("type: infiniband", "type: infinband"),
        ("per_node: 8", "per_node: 8, x: 1"),
        ("output_tokens: 128", "output_tokens: many"),
        ("rate: 2/s", "rate: 2"),
        ("vllm: 0.33.0", "vllm: 0.33"),
    )
    expected = ["DGC114 3:18", "DGC110 7:48", "DGC112 14:24", "DGC113 15:15", "DGC112 17:13"]
    assert said(loaded(text)) == expected


def test_an_unknown_field_does_not_hide_what_disagrees_elsewhere() -> None:
    text = changed(("per_node: 8", "per_node: 8, x: 1"), ("        rate: 2/s\n", ""))
    outcome = loaded(text)
    assert said(outcome) == ["DGC110 7:48", "DGC111 12:7"]
    assert outcome.value is None


def test_a_wrong_optional_field_does_not_hide_what_disagrees_elsewhere() -> None:
    text = changed(
        ("per_node: 8}", "per_node: 8}\n      price: 24"),
        ("n2: 10.0.0.2", "n2: 10.0.0.1"),
        (
            "rate: 2/s",
            "rate: 2/s\n        objectives: {ttft_p50: 5, ttft_p90: 1s, ttft_p99: 3s, itl_p50: 9s, itl_p99: 1s}",
        ),
        (
            "vllm: 0.33.0",
            "vllm: 0.33.0\n    constraints: {prefill: {tp: [x], nodes: [bg]}, decode: {nodes: [bg]}}",
        ),
    )
    assert said(loaded(text)) == [
        "DGC115 6:33",
        "DGC113 8:14",
        "DGC113 17:32",
        "DGC112 20:34",
        "DGC114 20:46",
        "DGC114 20:69",
    ]


def test_what_may_follow_from_a_wrong_field_is_not_reported() -> None:
    assert said(loaded(changed(("rate: 2/s", "rate: 2\n        arrivals: {cv: 1}")))) == ["DGC113 15:15"]


def test_with_only_unknown_fields_the_spec_can_be_checked_further() -> None:
    outcome = loaded(changed(("per_node: 8", "per_node: 8, x: 1")))
    assert outcome.failed
    assert outcome.value is not None
    assert outcome.value.spec.cluster.nodes["big"].accelerator.per_node == 8


def test_a_missing_field_points_at_its_parent() -> None:
    outcome = loaded("version: 1\nservices: {}\n")
    assert said(outcome) == ["DGC111 1:1", "DGC114 2:1"]
    assert outcome.diagnostics[0].message == "the document has no `cluster`"
    assert outcome.diagnostics[0].help == "add `cluster:`: what there is to serve on"


@pytest.mark.parametrize("name", ["a`b", "a\u202eb", "x" * 500, "a\\nb"])
def test_hostile_names_stay_inside_their_quotes(name: str) -> None:
    outcome = loaded(changed(("per_node: 8", f"per_node: 8, '{name}': 1")))
    [finding] = outcome.diagnostics
    assert finding.code == "DGC110"
    assert len(finding.message) < 150
    assert finding.message.count("`") == 4
    assert finding.message.isprintable()
