"""Compares what a rendered file says with what was meant; a difference is a bug of a template or a filter."""

from __future__ import annotations


class ReadBackError(RuntimeError):
    """A rendered file does not say what was meant."""


def expect(path: str, what: str, *, meant: object, read: object) -> None:
    """Raise unless the file at `path` says of `what` what was meant."""
    if meant != read:
        raise ReadBackError(f"{path}: `{what}` reads back as {_clip(read)}, meant was {_clip(meant)}")


def _clip(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
