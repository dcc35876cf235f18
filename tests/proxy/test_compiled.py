"""What an installation says of itself is what it loads."""

from __future__ import annotations

import logging
import os

import pytest

from disaggc import __version__
from disaggc.proxy import compiled, framing
from disaggc.proxy.board import Board
from disaggc.proxy.exposition import render
from disaggc.proxy.launch import LaunchError, launch
from tests.compiled import ASKED


def test_the_tests_run_what_was_asked_for():
    """A forgotten extension module in a checkout would hide what is edited; a wrong path, what is to be proven."""
    assert compiled.is_compiled() == (ASKED in os.environ)


def test_it_is_what_python_loads():
    assert compiled.is_compiled() == (not framing.__file__.endswith(".py"))


@pytest.mark.parametrize(("sign", "expected"), [("json", False), ("_asyncio", True)])
def test_an_extension_module_is_told_from_a_source(sign, expected, monkeypatch):
    monkeypatch.setattr(compiled, "_SIGN", sign)
    assert compiled.is_compiled() is expected


def test_the_metrics_say_which():
    kind = "false" if framing.__file__.endswith(".py") else "true"
    page = render(Board.create(1), (), {}, generation=1)
    assert f'\ndisaggc_proxy_build_info{{version="{__version__}",compiled="{kind}"}} 1\n' in page


@pytest.mark.parametrize("kind", ["compiled", "interpreted"])
def test_the_log_begins_with_it(kind, monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(compiled, "_SIGN", "_asyncio" if kind == "compiled" else "json")
    with caplog.at_level(logging.INFO), pytest.raises(LaunchError):
        launch(tmp_path / "missing.json", workers=1)
    assert caplog.messages[0].startswith(f"disaggc {__version__}, {kind}")
