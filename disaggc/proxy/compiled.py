"""Whether the proxy of this installation is compiled. Looks for a file, loads nothing: `--version` stays quick."""

from __future__ import annotations

from importlib.util import find_spec

_SIGN = "disaggc.proxy.framing"
"""A module that is compiled where any is: a wheel holds all of them or none, see .ci/hatch_build.py."""


def is_compiled() -> bool:
    """Whether an extension module stands in front of the source."""
    found = find_spec(_SIGN)
    return found is not None and found.origin is not None and not found.origin.endswith(".py")
