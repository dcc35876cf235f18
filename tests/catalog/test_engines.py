"""Engine snapshots: which one answers, how spellings resolve, what was taken away, that nothing was lost on the way."""

from __future__ import annotations

import json

import pytest

from disaggc.catalog.engine_files import read_snapshot
from disaggc.catalog.load import load_catalog
from disaggc.catalog.snapshot import render
from disaggc.catalog.tables import data_text
from disaggc.diagnostics import Severity

CATALOG = load_catalog()
VERSIONS = ("0.21.0", "0.32.0", "0.33.0")


def snapshot(version):
    return CATALOG.engine(version).value


def test_versions():
    assert CATALOG.engine_versions == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_known_version_is_exact_and_silent(version):
    outcome = CATALOG.engine(version)
    assert outcome.diagnostics == ()
    assert outcome.value.exact
    assert outcome.value.text == version
    assert version in outcome.value.source
    assert len(outcome.value.flags) > 230


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        ("0.33.1", "0.33.0"),
        ("0.32.9", "0.32.0"),
        ("0.22.0", "0.21.0"),
        ("1.0.0", "0.33.0"),
        ("0.33.0rc1", "0.33.0"),
    ],
)
def test_the_nearest_lower_one_answers_with_a_warning(asked, used):
    outcome = CATALOG.engine(asked)
    assert outcome.value.text == used
    assert not outcome.value.exact
    (found,) = outcome.diagnostics
    assert (found.code, found.severity) == ("DGC204", Severity.WARNING)
    assert asked in found.message
    assert used in found.message


def test_a_local_build_is_the_same_version():
    assert CATALOG.engine("0.32.0+cpu").diagnostics == ()


@pytest.mark.parametrize(
    "asked", ["0.20.2", "0.0.1", "", "latest", "0.33", "v0.33.0", "9" * 50, "0.33.0\n; rm"]
)
def test_too_old_or_no_version_is_an_error(asked):
    outcome = CATALOG.engine(asked)
    if outcome.value is None:
        assert [(d.code, d.severity) for d in outcome.diagnostics] == [("DGC205", Severity.ERROR)]
        assert outcome.diagnostics[0].help
    else:
        assert outcome.diagnostics[0].code == "DGC204"


@pytest.mark.parametrize(
    ("spelling", "name", "negated", "key"),
    [
        ("tensor-parallel-size", "tensor-parallel-size", False, None),
        ("--tensor-parallel-size", "tensor-parallel-size", False, None),
        ("tensor_parallel_size", "tensor-parallel-size", False, None),
        ("tp", "tensor-parallel-size", False, None),
        ("-tp", "tensor-parallel-size", False, None),
        ("no-enable-prefix-caching", "enable-prefix-caching", True, None),
        ("no_enable_prefix_caching", "enable-prefix-caching", True, None),
        ("kv-transfer-config.kv_role", "kv-transfer-config", False, "kv_role"),
        ("kv-transfer-config.kv_connector_extra_config.backends", "kv-transfer-config", False,
         "kv_connector_extra_config.backends"),
        ("cc.mode", "compilation-config", False, "mode"),
        ("device-memory-utilization", "gpu-memory-utilization", False, None),
    ],
)  # fmt: skip
def test_spellings(spelling, name, negated, key):
    use = snapshot("0.33.0").flag(spelling)
    assert (use.flag.name, use.negated, use.key) == (name, negated, key)


@pytest.mark.parametrize(
    "spelling", ["", "-", "tensor-parallel", "swap-space", "block-size.a", "tp.x", "no-port", "."]
)
def test_what_is_no_flag(spelling):
    assert snapshot("0.33.0").flag(spelling) is None


def test_kinds_and_choices():
    flags = snapshot("0.33.0").flags
    kinds = {name: flags[name].kind for name in (
        "max-model-len", "gpu-memory-utilization", "kv-transfer-config", "enable-prefix-caching", "headless", "dtype",
        "served-model-name", "api-key", "kv-cache-dtype", "port", "speculative-config", "max-num-batched-tokens",
    )}  # fmt: skip
    assert kinds == {
        "max-model-len": "int", "gpu-memory-utilization": "float", "kv-transfer-config": "json",
        "enable-prefix-caching": "bool", "headless": "bool", "dtype": "choice", "served-model-name": "list",
        "api-key": "list", "kv-cache-dtype": "str", "port": "int", "speculative-config": "json",
        "max-num-batched-tokens": "int",
    }  # fmt: skip
    assert "bfloat16" in flags["dtype"].choices
    assert flags["gpu-memory-utilization"].default == "0.92"


def test_differences_between_versions():
    old, middle, new = (snapshot(v) for v in VERSIONS)
    assert set(new.flags) - set(middle.flags) == {
        "monokernel", "reasoning-effort-map", "sleep-mode-backend", "watchdog-config",
    }  # fmt: skip
    assert set(middle.flags) <= set(new.flags)
    gone = {
        "calculate-kv-scales",
        "max-long-partial-prefills",
        "max-num-partial-prefills",
        "override-attention-dtype",
    }
    assert gone <= set(old.flags) - set(new.flags)
    assert gone <= set(new.removed_flags)
    assert not gone & set(old.removed_flags)
    assert "P2pNcclConnector" in old.connectors
    assert "P2pNcclConnector" in new.removed_connectors
    assert {"kv_rank", "kv_parallel_size", "kv_ip"} <= old.kv_transfer_keys
    assert {"kv_rank", "kv_parallel_size", "kv_ip"} <= set(new.removed_kv_transfer_keys)
    assert "VLLM_RPC_TIMEOUT" in old.env_names
    assert "VLLM_RPC_TIMEOUT" in new.removed_env


def test_environment_names():
    names = snapshot("0.33.0").env_names
    assert {
        "VLLM_NIXL_SIDE_CHANNEL_HOST",
        "VLLM_NIXL_SIDE_CHANNEL_PORT",
        "VLLM_MOONCAKE_BOOTSTRAP_PORT",
    } <= names
    assert {
        "VLLM_PORT",
        "VLLM_HOST_IP",
        "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS",
        "VLLM_KV_CACHE_LAYOUT",
    } <= names


@pytest.mark.parametrize(
    ("family", "name", "keys"),
    [
        ("nixl", "NixlConnector", {"backends", "num_threads", "kv_lease_duration", "enforce_handshake_compat",
                                   "bidirectional_kv_xfer", "engine_ttl", "decoder_kv_blocks_ttl"}),
        ("nixl-push", "NixlPushConnector", {"backends", "push_registration_timeout"}),
        ("mooncake", "MooncakeConnector", {"num_workers", "mooncake_protocol", "device_name",
                                           "bootstrap_server_address"}),
        ("moriio", "MoRIIOConnector", {"http_port", "handshake_port", "notify_port", "proxy_ping_port", "proxy_ip",
                                       "read_mode", "qp_per_transfer", "transfer_timeout", "host_ip"}),
    ],
)  # fmt: skip
def test_connectors_of_the_newest_version(family, name, keys):
    facts = snapshot("0.33.0").connector_of(family)
    assert facts.name == name
    assert keys <= facts.option_keys
    assert facts.supports_hma


def test_connectors_by_version():
    assert snapshot("0.21.0").connector_of("nixl-push") is None
    assert snapshot("0.21.0").connector_of("nixl").name == "NixlConnector"
    assert not snapshot("0.33.0").connectors["LMCacheConnectorV1"].supports_hma
    assert [c.name for c in CATALOG.connectors] == sorted(snapshot("0.33.0").connectors)


@pytest.mark.parametrize("version", VERSIONS)
def test_files_round_trip(version):
    text = data_text(f"engines/{version}.json")
    raw = json.loads(text)
    assert render(raw) == text
    typed = read_snapshot(raw, exact=True)
    assert set(typed.flags) == set(raw["flags"])
    assert typed.env_names == set(raw["env"])
    for name, row in raw["flags"].items():
        flag = typed.flags[name]
        assert (flag.kind, list(flag.choices), flag.default) == (
            row["kind"],
            row.get("choices", []),
            row.get("default"),
        )
        assert typed.flag(name).flag is flag
        for alias in flag.aliases:
            assert typed.flag(alias).flag is flag
        for negation in flag.negations:
            assert typed.flag(negation).negated


def test_the_reference_flag_lists_are_covered(shared_data):
    for version in ("0.21.0", "0.33.0"):
        table = json.loads(shared_data(f"data/vllm/flags-{version}.json").read_text(encoding="utf-8"))
        known = snapshot(version)
        missing = {name for name in table if known.flag(name) is None}
        assert not missing, version
        for name, row in table.items():
            if row["type"] in {"int", "int | None", "float", "bool"}:
                assert known.flag(name).flag.kind == row["type"].split()[0], name
