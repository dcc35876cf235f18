"""What an installation says of itself is what it loads."""

from __future__ import annotations

import pytest

from disaggc import __version__
from disaggc.proxy import compiled, framing
from disaggc.proxy.board import Board
from disaggc.proxy.exposition import render


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
