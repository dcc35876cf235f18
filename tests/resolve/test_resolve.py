"""A spec with its facts: what every reference binds to, and what is said where it binds to nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from disaggc.catalog.load import load_catalog
from disaggc.diagnostics import Outcome, Severity
from disaggc.resolve.api import resolve
from disaggc.resolve.model import Bound, ResolvedService, ResolvedSpec
from disaggc.spec.files import Unreadable
from disaggc.spec.load import load, place
from tests.spec.loading import NAME, VALID, changed, place_of
from tests.spec.strategies import CONFIG, FILES

CATALOG = load_catalog()
PRODUCT = Path(__file__).parents[1] / "spec" / "data" / "product.yaml"
ENGINE = "      vllm: 0.33.0\n"
HOSTS = "hosts: {n1: 10.0.0.1, n2: 10.0.0.2}"


def outcome_of(text: str, others: Mapping[str, str] | None = None) -> Outcome[ResolvedSpec]:
    files = {NAME: text, **FILES, **(others or {})}

    def read(path: Path, limit: int) -> bytes | Unreadable:
        content = files.get(str(path))
        if content is None:
            return Unreadable("the file does not exist")
        return content.encode() if len(content) <= limit else Unreadable("the file is too large")

    loaded = load([Path(NAME)], read=read)
    assert loaded.value is not None, loaded.diagnostics
    outcome = resolve(loaded.value, CATALOG, read=read)
    return Outcome(outcome.value, place(outcome.diagnostics, loaded.value.sources))


def resolved(text: str, others: Mapping[str, str] | None = None) -> ResolvedSpec:
    outcome = outcome_of(text, others)
    assert outcome.value is not None, outcome.diagnostics
    return outcome.value


def chat(text: str, others: Mapping[str, str] | None = None) -> ResolvedService:
    return resolved(text, others).services[0]


def test_the_example_of_the_product() -> None:
    found = resolved(PRODUCT.read_text())
    [group] = found.groups
    assert (group.accelerator.id, group.accelerator.vendor, group.per_node, group.nics) == (
        "mi300x",
        "amd",
        8,
        8,
    )
    assert group.nic_bytes_per_s == 25e9
    assert [node.name for node in group.nodes] == ["gpu-01", "gpu-02", "gpu-03", "gpu-04", "gpu-05"]
    assert group.nodes[0].address == "10.0.0.1"
    assert group.nodes[0].pinned
    [service] = found.services
    assert service.max_model_len == 16384
    assert service.model_path == "/models/DeepSeek-R1"
    assert service.served_name == "deepseek-ai/DeepSeek-R1"
    assert (service.prefill.tp, service.prefill.groups) == ((4, 8), ("mi300x",))
    assert service.colocated.tp == (4, 8)
    assert service.kv_bytes_per_token_full == 61 * 576 * 2
    [load_] = service.classes
    assert (load_.rate, load_.concurrency, load_.arrival_cv, load_.prefix_hit) == (2.0, 480, 1.0, 0.0)
    assert load_.bounds == (Bound("ttft", 90, 10.0), Bound("itl", 99, 0.2), Bound("e2e", 50, 1200.0))
    assert (found.target, found.fabric.type) == ("kubernetes", "infiniband")


UNKNOWN = [
    ((("type: mi300x", "type: mi300"),), "DGC201 7:27", "`mi300`", "`mi300x`"),
    (
        (("id: deepseek-ai/DeepSeek-R1", "id: deepseek-ai/DeepSeek-r1-x"),),
        "DGC202 10:17",
        "DeepSeek-r1-x",
        "DeepSeek-R1`",
    ),
    ((("id: deepseek-ai/DeepSeek-R1", "id: x, config: nowhere.json"),), "DGC203 10:28", "does not exist", ""),
    ((("id: deepseek-ai/DeepSeek-R1", "id: x, config: broken.json"),), "DGC203 10:28", "", ""),
    ((("vllm: 0.33.0", "vllm: 0.1.0"),), "DGC205 17:13", "older", ""),
    (((ENGINE, ENGINE + "calibration: nowhere.yaml\n"),), "DGC206 18:14", "does not exist", ""),
    ((("input_tokens: 1024", "input_tokens: {trace: nowhere.csv}"),), "DGC101 13:31", "does not exist", ""),
    ((("input_tokens: 1024", "input_tokens: {trace: broken.json}"),), "DGC101 13:31", "not JSON", ""),
    (
        (("rate: 2/s", "rate: 2/s\n        arrivals: {trace: short.csv}"),),
        "DGC101 16:27",
        "fewer than three",
        "",
    ),
    (
        (("output_tokens: 128", "output_tokens: {trace: short.csv}"),),
        "DGC101 14:32",
        "no column of output",
        "",
    ),
    (((ENGINE, ENGINE + "      images: {nvidia: x}\n"),), "DGC116 18:16", "`nvidia`", ""),
    (
        ((ENGINE, ENGINE + "    constraints: {decode: {accelerators: [mi300]}}\n"),),
        "DGC114 18:43",
        "`mi300`",
        "`mi300x`",
    ),
    (((HOSTS, "count: 2"), (ENGINE, ENGINE + "target: systemd\n")), "DGC604 6:7", "`systemd`", "hosts:"),
    (((HOSTS, "count: 2"), (ENGINE, ENGINE + "target: compose\n")), "DGC604 6:7", "`compose`", "hosts:"),
]
BROKEN = {"broken.json": "{\n", "short.csv": "timestamp,input_tokens\n0,5\n1,6\n"}


@pytest.mark.parametrize(("edits", "place_", "words", "hint"), UNKNOWN)
def test_a_reference_that_binds_to_nothing(
    edits: tuple[tuple[str, str], ...], place_: str, words: str, hint: str
) -> None:
    outcome = outcome_of(changed(*edits), BROKEN)
    assert outcome.value is None
    [finding] = outcome.diagnostics
    assert place_of(finding) == place_
    assert words in finding.message
    assert hint in (finding.help or "")


def test_an_engine_version_without_a_snapshot_is_a_warning() -> None:
    outcome = outcome_of(changed(("vllm: 0.33.0", "vllm: 0.32.7")))
    assert outcome.value is not None
    [finding] = outcome.diagnostics
    assert (place_of(finding), finding.severity) == ("DGC204 17:13", Severity.WARNING)
    assert outcome.value.services[0].snapshot.text == "0.32.0"


def test_every_unbound_reference_is_reported_in_one_run() -> None:
    text = changed(
        ("type: mi300x", "type: mi3"),
        ("id: deepseek-ai/DeepSeek-R1", "id: x/y"),
        ("vllm: 0.33.0", "vllm: 0.1.0"),
    )
    assert [place_of(d) for d in outcome_of(text).diagnostics] == [
        "DGC201 7:27",
        "DGC202 10:17",
        "DGC205 17:13",
    ]


def test_node_groups_that_exclude_each_other() -> None:
    second = "    more:\n      count: 1\n      accelerator: {type: h100-sxm, per_node: 8}\nservices:\n"
    constraints = "    constraints: {prefill: {nodes: [big], accelerators: [h100-sxm]}}\n"
    outcome = outcome_of(changed(("services:\n", second), (ENGINE, ENGINE + constraints)))
    assert [place_of(d) for d in outcome.diagnostics] == ["DGC115 21:19"]


def test_roles_see_the_groups_their_limits_leave() -> None:
    second = "    more:\n      count: 1\n      accelerator: {type: h100-sxm, per_node: 8}\nservices:\n"
    constraints = "    constraints: {prefill: {nodes: [more]}, decode: {accelerators: [mi300x], tp: [8]}}\n"
    service = chat(changed(("services:\n", second), (ENGINE, ENGINE + constraints)))
    assert service.prefill.groups == ("more",)
    assert service.decode.groups == service.colocated.groups == ("big",)
    assert service.colocated.tp == (8,)


def test_an_alias_of_an_accelerator_is_the_accelerator() -> None:
    limits = "    constraints: {prefill: {accelerators: [a100]}, decode: {accelerators: [a100-80g]}}\n"
    for written in ("a100", "a100-80gb", "a100-80g"):
        service = chat(changed(("type: mi300x", f"type: {written}"), (ENGINE, ENGINE + limits)))
        assert service.prefill.groups == service.decode.groups == ("big",)


def test_an_accelerator_stated_inline_and_one_corrected() -> None:
    facts = (
        "{per_node: 4, vendor: nvidia, memory: 80GB, memory_bandwidth: 2TB/s, bf16: 1PFLOPS, fp8: 2PFLOPS}"
    )
    [group] = resolved(changed(("{type: mi300x, per_node: 8}", facts))).groups
    assert (group.accelerator.vendor, group.accelerator.memory_bytes) == ("nvidia", 80e9)
    assert (group.accelerator.flops("bf16"), group.accelerator.flops("fp8")) == (1e15, 2e15)
    assert (group.nics, group.accelerator.link_domain) == (4, 4)
    [group] = resolved(changed(("per_node: 8}", "per_node: 8, memory: 100GiB}"))).groups
    known = CATALOG.accelerator("mi300x")
    assert known is not None
    assert group.accelerator.memory_bytes == 100 * 2**30
    assert group.accelerator.memory_bandwidth == known.memory_bandwidth
    assert group.accelerator.source.endswith("corrected in the spec")


def test_counted_nodes_have_names_and_no_addresses() -> None:
    [group] = resolved(changed((HOSTS, "count: 3\n      racks: {r1: [big-1]}"))).groups
    assert [(node.name, node.address, node.rack, node.pinned) for node in group.nodes] == [
        ("big-0", None, None, False),
        ("big-1", None, "r1", False),
        ("big-2", None, None, False),
    ]


def test_a_model_from_its_own_config() -> None:
    service = chat(changed(("id: deepseek-ai/DeepSeek-R1", "id: example/own, config: config.json")))
    assert service.model.heads == 32
    assert service.kv_bytes_per_token_full == 2 * 32 * 8 * 128 * 2
    assert service.model_path == "example/own"


def test_a_config_lies_beside_the_file_that_names_it() -> None:
    text = VALID[: VALID.index("services:")] + "services:\n  chat: {from: parts/chat.yaml}\n"
    part = "model: {id: x, config: own.json}\nengine: {vllm: 0.33.0}\nworkload: {rag: {input_tokens: 9, output_tokens: 9, rate: 1/s}}\n"
    service = chat(text, {"parts/chat.yaml": part, "parts/own.json": json.dumps(CONFIG)})
    assert service.model.layers


@pytest.mark.parametrize(
    ("settings", "length"),
    [
        ("max-model-len: 5000", 5000),
        ("max_model_len: 5000", 5000),
        ("max-model-len: 16k", 16000),
        ("max-model-len: 16K", 16384),
        ("max-model-len: 1.5K", 1536),
        ("max-model-len: auto", 2048),
        ("max-model-len: -1", 2048),
        ("seed: 1", 2048),
    ],
)
def test_the_context_is_as_set_or_the_least_round_one_that_fits(settings: str, length: int) -> None:
    assert chat(changed((ENGINE, f"{ENGINE}      settings: {{{settings}}}\n"))).max_model_len == length


@pytest.mark.parametrize(
    ("tokens", "length"),
    [("4096", 6144), ("3968", 4096), ("3969", 6144), ("{mean: 1000, p99: 8000}", 8192), ("300000", 163840)],
)
def test_the_least_round_context(tokens: str, length: int) -> None:
    assert (
        chat(
            changed(
                (
                    "input_tokens: 1024",
                    f"input_tokens: {tokens}".replace("1000,", "1000.0,").replace("8000}", "8000.0}"),
                )
            )
        ).max_model_len
        == length
    )


def test_the_longest_scenario_decides_the_context_of_all() -> None:
    found = resolved(
        changed((ENGINE, f"{ENGINE}scenarios:\n  long: {{services.chat.workload.rag.input_tokens: 9000}}\n"))
    )
    assert [scenario.name for scenario in found.scenarios] == ["long"]
    assert found.scenarios[0].services[0].classes[0].isl.mean == 9000
    assert found.services[0].classes[0].isl.mean == 1024
    assert found.scenarios[0].services[0].max_model_len == found.services[0].max_model_len == 12288


@pytest.mark.parametrize(
    ("dtype", "per_element"),
    [
        ("auto", 2),
        ("bfloat16", 2),
        ("float16", 2),
        ("fp8", 1),
        ("fp8_e4m3", 1),
        ("fp8_ds_mla", 656 / 576),
        ("nvfp4", 0.5625),
    ],
)
def test_bytes_of_the_cache_follow_its_type(dtype: str, per_element: float) -> None:
    service = chat(changed((ENGINE, f"{ENGINE}      settings: {{kv-cache-dtype: {dtype}}}\n")))
    assert service.kv_dtype == dtype
    assert service.kv_bytes_per_token_full == pytest.approx(61 * 576 * per_element)


def test_settings_of_a_role_win_under_any_spelling() -> None:
    engine = "      settings: {stream_interval: 1, seed: 3, tp: 4}\n      decode: {settings: {stream-interval: 8}}\n"
    settings = chat(changed((ENGINE, ENGINE + engine))).settings
    assert settings["prefill"] == {"stream-interval": 1, "seed": 3, "tensor-parallel-size": 4}
    assert settings["decode"] == {"stream-interval": 8, "seed": 3, "tensor-parallel-size": 4}
    assert settings["colocated"] == settings["prefill"]


def test_the_memory_share_is_as_set_or_the_versions_own() -> None:
    assert chat(VALID).utilisation == 0.92
    assert (
        chat(changed((ENGINE, f"{ENGINE}      settings: {{gpu-memory-utilization: 0.8}}\n"))).utilisation
        == 0.8
    )
    assert (
        chat(changed((ENGINE, f"{ENGINE}      settings: {{gpu-memory-utilization: lots}}\n"))).utilisation
        == 0.92
    )


def test_traces_give_lengths_and_variation() -> None:
    text = changed(
        ("input_tokens: 1024", "input_tokens: {trace: trace.csv}"),
        ("output_tokens: 128", "output_tokens: {trace: trace.jsonl}"),
        ("rate: 2/s", "rate: 2/s\n        arrivals: {trace: trace.csv}"),
    )
    [load_] = chat(text).classes
    assert load_.isl.mean == (512 + 900 + 300 + 1500) / 4
    assert load_.osl.p99 == 150
    assert 0.5 < load_.arrival_cv < 0.8


def digests(text: str, others: Mapping[str, str] | None = None) -> tuple[str, str]:
    found = resolved(text, others)
    return found.spec_digest, found.catalog_digest


def test_digests_are_of_what_is_said_and_not_of_how() -> None:
    base = digests(VALID)
    assert digests("# words\n" + VALID.replace("200Gbit", "'25GB/s'").replace("1024", "0x400")) == base
    assert digests(changed((ENGINE, ENGINE + "optimize: throughput\n"))) == base
    reordered = (
        "version: 1\n"
        + VALID[VALID.index("services:") :]
        + VALID[VALID.index("cluster:") : VALID.index("services:")]
    )
    assert digests(reordered) == base


@pytest.mark.parametrize(
    "edit",
    [
        ("rate: 2/s", "rate: 3/s"),
        ("10.0.0.2", "10.0.0.3"),
        ("      vllm: 0.33.0\n", "      vllm: 0.33.0\noptimize: cost\n"),
    ],
)
def test_any_other_value_is_another_spec(edit: tuple[str, str]) -> None:
    base, other = digests(VALID), digests(changed(edit))
    assert base[0] != other[0]
    assert base[1] == other[1]


def test_the_content_of_a_trace_is_part_of_the_spec() -> None:
    text = changed(("input_tokens: 1024", "input_tokens: {trace: t.csv}"))
    rows = "timestamp,input_tokens,output_tokens\n0,5,5\n"
    assert digests(text, {"t.csv": rows})[0] != digests(text, {"t.csv": rows + "1,6,6\n"})[0]


def test_facts_are_part_of_the_catalogs_digest() -> None:
    assert digests(VALID)[1] != digests(changed(("per_node: 8}", "per_node: 8, memory: 100GiB}")))[1]
    assert digests(VALID)[1] != digests(changed(("vllm: 0.33.0", "vllm: 0.32.0")))[1]


def test_the_calibration_is_carried_as_text() -> None:
    found = resolved(changed((ENGINE, ENGINE + "calibration: calibration.yaml\n")))
    assert found.calibration is not None
    assert (found.calibration.path, found.calibration.text) == ("calibration.yaml", FILES["calibration.yaml"])
