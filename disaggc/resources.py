"""Where the files shipped beside the code are: target packs, JSON Schemas, examples. Reads none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

Shipped = Literal["targets", "schemas", "examples"]

_PACKAGE = Path(__file__).resolve().parent


def shipped(kind: Shipped) -> Path:
    """The folder of that kind: inside an installed wheel, else at the root of the checkout."""
    installed = _PACKAGE / "_data" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind
