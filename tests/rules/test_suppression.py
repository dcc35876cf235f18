"""Rules and comments together: what may be silenced is, what corrupts answers is not, and unused comments are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from disaggc.compilation import Request
from disaggc.pipeline import check
from disaggc.rules.example import EXAMPLE


def codes(tmp_path: Path, old: str, new: str) -> list[str]:
    assert old in EXAMPLE
    spec = tmp_path / "disaggc.yaml"
    spec.write_text(EXAMPLE.replace(old, new), encoding="utf-8")
    return [f"{d.code} {d.severity}" for d in check(Request((spec,))).report.sorted()]


PROXY = "    proxy: {api_key: {env: CHAT_API_KEY}}"


@pytest.mark.parametrize("name", ["DGC801", "open-proxy"])
def test_a_warning_is_silenced_by_code_or_name(tmp_path: Path, name: str):
    assert codes(tmp_path, PROXY, "    proxy: {port: 8000}") == ["DGC801 warning"]
    assert (
        codes(tmp_path, PROXY, f"    proxy: {{port: 8000}}  # disaggc: ignore[{name}] behind a gateway") == []
    )


def test_an_error_that_a_snapshot_may_get_wrong_is_silenced(tmp_path: Path):
    old, new = "{max-model-len: 8192}", "{max-model-len: 8192, brand-new-flag: 1}"
    assert codes(tmp_path, old, new) == ["DGC210 error"]
    assert codes(tmp_path, old, f"{new}  # disaggc: ignore[unknown-flag] our own build has it") == []


def test_an_error_that_corrupts_answers_stays(tmp_path: Path):
    old = "      vllm: 0.33.0"
    new = "      connector: {options: {enforce_handshake_compat: false}}"
    comment = "  # disaggc: ignore[DGC406] trust me"
    assert codes(tmp_path, old, f"{old}\n{new}{comment}") == ["DGC406 error"]


def test_an_unused_comment_is_told(tmp_path: Path):
    assert codes(tmp_path, PROXY, f"{PROXY}  # disaggc: ignore[DGC801] not needed") == ["DGC130 warning"]
