"""The catalog is lazy, and its digest holds exactly the facts that were used."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from disaggc.catalog.load import Catalog, load_catalog
from disaggc.catalog.tables import Table

CATALOG = load_catalog()


def used():
    model = CATALOG.model("deepseek-ai/DeepSeek-R1")
    engine = CATALOG.engine("0.33.0").value
    return [CATALOG.accelerator("mi300x"), CATALOG.fabric("infiniband"), model, engine]


def test_the_digest_is_stable_and_knows_no_order():
    digest = Catalog.digest(used())
    assert digest.startswith("sha256:")
    assert len(digest) == 71
    assert Catalog.digest(reversed(used())) == digest
    assert Catalog.digest(used() + used()) == digest


def test_any_changed_fact_changes_the_digest():
    accelerator, fabric, model, engine = used()
    digest = Catalog.digest(used())
    flags = {**engine.flags, "port": replace(engine.flags["port"], default="8001")}
    changed = [
        [replace(accelerator, memory_bandwidth=accelerator.memory_bandwidth + 1), fabric, model, engine],
        [accelerator, replace(fabric, latency_s=1e-6), model, engine],
        [accelerator, fabric, replace(model, max_position=1), engine],
        [accelerator, fabric, model, replace(engine, flags=flags)],
        [accelerator, fabric, model, replace(engine, env_names=engine.env_names - {"VLLM_PORT"})],
        [accelerator, fabric, model],
    ]
    digests = [Catalog.digest(facts) for facts in changed]
    assert digest not in digests
    assert len(set(digests)) == len(digests)


def test_the_digest_does_not_depend_on_the_hash_seed():
    program = (
        "from disaggc.catalog.load import load_catalog; c = load_catalog(); "
        "print(c.digest([c.accelerator('mi300x'), c.model('openai/gpt-oss-120b'), c.engine('0.33.0').value]))"
    )
    outputs = set()
    for seed in ("0", "1", "77"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        run = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, check=True
        )
        outputs.add(run.stdout)
    assert len(outputs) == 1


def test_sections_are_parsed_when_asked_for(monkeypatch):
    parsed = []
    real = Table.get

    def spy(table, name):
        parsed.append(name)
        return real(table, name)

    monkeypatch.setattr(Table, "get", spy)
    catalog = load_catalog()
    assert catalog.accelerator_ids
    assert catalog.model_ids
    assert parsed == []
    catalog.accelerator("mi300x")
    assert set(parsed) <= {"aliases", "mi300x"}


def test_reading_the_catalog_imports_no_heavy_module():
    program = (
        "import sys; from disaggc.catalog.load import load_catalog; c = load_catalog(); c.model('Qwen/Qwen3-32B'); "
        "print([m for m in ('numpy', 'ortools', 'aiohttp', 'yaml', 'jinja2', 'asyncio') if m in sys.modules])"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True
    )
    assert run.stdout.strip() == "[]"
