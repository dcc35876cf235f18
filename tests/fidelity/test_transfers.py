"""The KV transfer line on made-up rows: what is fitted, what is left out, and what was held back."""

from __future__ import annotations

import csv
import json

import pytest

from tests.fidelity.__main__ import COMMITTED, main
from tests.fidelity.points import COLUMNS, read_table
from tests.fidelity.subjects import facts_of
from tests.fidelity.transfers import NAME, transfer_line

ROW = {
    "source": "mooncake_vllm", "model": "Qwen3-8B", "precision": "bf16", "gpu": "H800", "mode": "disagg", "osl": "1",
    "metric": "kv_transfer_time", "unit": "ms", "split": "dev",
}  # fmt: skip
EACH = facts_of("Qwen3-8B", "bf16").kv_bytes_per_token


def table(tmp_path, *rows):
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, COLUMNS, restval="")
        out.writeheader()
        for i, row in enumerate(rows):
            out.writerow({**ROW, "row_id": f"K{i}", **row})
    return path


def figures(tmp_path, *rows):
    return transfer_line(read_table(table(tmp_path, *rows)).points).figures


def taken(tokens, setup_ms, gb_s, **changes):
    """A row of so many tokens at these constants."""
    return {"isl": str(tokens), "value": str(setup_ms + tokens * EACH / gb_s * 1e-6), **changes}


def test_setup_and_bandwidth_come_back_and_a_bad_length_shows_where_it_is_left_out(tmp_path):
    lengths = (128, 512, 2048, 8192, 16384)
    found = figures(tmp_path, *(taken(n, 0.5, 100) for n in lengths))
    assert found["mooncake_vllm_setup_ms"] == pytest.approx(0.5)
    assert found["mooncake_vllm_gb_s"] == pytest.approx(100)
    assert found["mooncake_vllm_mape"] == pytest.approx(0, abs=1e-9)
    bad = [taken(n, 0.5 if n > 128 else 1.0, 100) for n in lengths]
    worse = figures(tmp_path, *bad)
    assert worse["mooncake_vllm_mape"] > worse["mooncake_vllm_fitted_mape"]
    assert worse["mooncake_vllm_mape"] > worse["mooncake_vllm_between_others_mape"]


def test_rows_held_back_are_asked_of_the_committed_constants_and_never_fitted(tmp_path):
    known = json.loads(COMMITTED.read_text())["lines"][NAME]["figures"]
    setup, speed = known["mooncake_vllm_setup_ms"], known["mooncake_vllm_gb_s"]
    unseen = [taken(n, setup * 1.1, speed / 1.1, split="test") for n in (1000, 4000)]
    alone = figures(tmp_path, *unseen)
    assert alone["mooncake_vllm_held_back_rows"] == 2
    assert alone["mooncake_vllm_held_back_mape"] == pytest.approx(1 - 1 / 1.1, rel=1e-3)
    assert "mooncake_vllm_mape" not in alone
    both = figures(tmp_path, *unseen, *(taken(n, 0.5, 100) for n in (128, 512, 2048, 8192)))
    assert both["mooncake_vllm_setup_ms"] == pytest.approx(0.5)
    assert both["mooncake_vllm_held_back_mape"] == alone["mooncake_vllm_held_back_mape"]


def test_what_a_plan_says_of_nodes_nobody_measured_is_judged_too(tmp_path):
    near = figures(tmp_path, *(taken(n, 2.0, 160) for n in (1024, 4096)))
    assert near["mooncake_vllm_prior_in_range"] == 1
    assert near["mooncake_vllm_prior_mape"] < 0.1
    far = figures(tmp_path, *(taken(n, 90.0, 1) for n in (1024, 4096)))
    assert far["mooncake_vllm_prior_in_range"] == 0


def test_a_table_of_transfers_alone_is_judged(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tests.fidelity.__main__.extra_lines", lambda: ())
    path = table(tmp_path, *(taken(n, 2.0, 160) for n in (1024, 4096)))
    assert main(["--data", str(path), "--jobs", "1", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["lines"][NAME]["figures"]
    assert shown["mooncake_vllm_prior_in_range"] == 1
    assert main(["--data", str(path), "--jobs", "1", "--quick"]) == 2
