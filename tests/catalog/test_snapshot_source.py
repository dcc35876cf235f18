"""The reader of an unpacked vLLM, on a small package of the same build."""

from __future__ import annotations

import json

import pytest

from disaggc.catalog.engine_files import read_snapshot
from disaggc.catalog.snapshot import render
from disaggc.catalog.snapshot_source import connectors, kv_transfer_keys

FACTORY = """
class KVConnectorFactory:
    @classmethod
    def register_connector(cls, name, module_path, class_name): ...

KVConnectorFactory.register_connector("NixlConnector", "vllm.distributed.kv_transfer.kv_connector.v1.nixl", "Nixl")
KVConnectorFactory.register_connector(
    "NixlPushConnector", "vllm.distributed.kv_transfer.kv_connector.v1.nixl", "NixlPush"
)
KVConnectorFactory.register_connector(
    "PlainConnector", "vllm.distributed.kv_transfer.kv_connector.v1.plain_connector", "PlainConnector"
)
"""
NIXL = """
class Nixl(Base, SupportsHMA):
    def __init__(self, config):
        extra_config = config.kv_connector_extra_config
        self.a = config.get_from_extra_config("backends", ["UCX"])
        self.b = config.kv_connector_extra_config.get("lease", 30)
        self.c = extra_config["port"]
        if "strict" in extra_config:
            self.d = other.get("unrelated")
"""
PLAIN = 'class PlainConnector(Base):\n    key = {"other": 1}["other"]\n'
CONFIG = (
    "class KVTransferConfig:\n    kv_role: str = None\n    engine_id: str = None\n\n    def x(self): ...\n"
)


@pytest.fixture
def package(tmp_path):
    root = tmp_path / "vllm"
    folder = root / "distributed/kv_transfer/kv_connector"
    (folder / "v1/nixl").mkdir(parents=True)
    (root / "config").mkdir()
    (folder / "factory.py").write_text(FACTORY)
    (folder / "v1/nixl/__init__.py").write_text("")
    (folder / "v1/nixl/worker.py").write_text(NIXL)
    (folder / "v1/plain_connector.py").write_text(PLAIN)
    (root / "config/kv_transfer.py").write_text(CONFIG)
    return root


def test_connectors_are_read_without_importing(package):
    found = connectors(package)
    assert found["NixlConnector"] == {
        "family": "nixl",
        "hma": True,
        "options": ["backends", "lease", "port", "strict"],
    }
    assert found["NixlPushConnector"]["family"] == "nixl-push"
    assert found["PlainConnector"] == {"family": "other", "hma": False, "options": []}


def test_transfer_keys(package):
    assert kv_transfer_keys(package) == ["engine_id", "kv_role"]


def test_what_is_written_can_be_read(package):
    flag = {"kind": "int", "aliases": ["x"], "default": "1"}
    raw = {
        "schema": "disaggc.engine-snapshot/v1", "version": "9.8.7", "source": "a test", "flags": {"flag": flag},
        "env": ["VLLM_X"], "connectors": connectors(package), "kv_transfer_keys": kv_transfer_keys(package),
    }  # fmt: skip
    text = render(raw)
    assert json.loads(text) == raw
    typed = read_snapshot(json.loads(text), exact=False)
    assert typed.version == (9, 8, 7)
    assert typed.flag("x").flag.default == "1"
    assert typed.connectors["NixlConnector"].option_keys == {"backends", "lease", "port", "strict"}
    assert not typed.exact
