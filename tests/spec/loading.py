"""Specs from texts: what the loader says about them, as short lines that tests compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from disaggc.diagnostics import Diagnostic, Outcome
from disaggc.spec.files import Unreadable
from disaggc.spec.load import LoadedSpec, load

VALID = """\
version: 1
cluster:
  fabric: {type: infiniband, speed_per_nic: 200Gbit}
  nodes:
    big:
      hosts: {n1: 10.0.0.1, n2: 10.0.0.2}
      accelerator: {type: mi300x, per_node: 8}
services:
  chat:
    model: {id: deepseek-ai/DeepSeek-R1}
    workload:
      rag:
        input_tokens: 1024
        output_tokens: 128
        rate: 2/s
    engine:
      vllm: 0.33.0
"""
NAME = "disaggc.yaml"


def loaded(
    text: str | bytes,
    others: Mapping[str, str | bytes] | None = None,
    *,
    sets: Sequence[str] = (),
    overlays: Sequence[str] = (),
) -> Outcome[LoadedSpec]:
    """The outcome of a spec given as text, with other files beside it by name."""
    files = {NAME: text, **(others or {})}

    def read(path: Path, _limit: int) -> bytes | Unreadable:
        content = files.get(str(path))
        if content is None:
            return Unreadable("the file does not exist")
        return content.encode() if isinstance(content, str) else content

    return load([Path(NAME), *map(Path, overlays)], sets=sets, read=read)


def said(outcome: Outcome[LoadedSpec]) -> list[str]:
    """`DGC110 3:5` for each finding, with the file's name before it where it is not the spec itself."""
    return [place_of(diagnostic) for diagnostic in outcome.diagnostics]


def place_of(diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    assert span is not None, diagnostic
    file = "" if span.file == NAME else f"{span.file}:"
    return f"{diagnostic.code} {file}{span.line}:{span.column}"


def changed(*edits: tuple[str, str]) -> str:
    """The valid spec with texts replaced; every one must be there."""
    text = VALID
    for before, after in edits:
        assert before in text, before
        text = text.replace(before, after)
    return text
