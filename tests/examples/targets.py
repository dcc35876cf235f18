"""Which examples there are and on which targets each one fits; the one list that the tests share."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

FITTING = {
    "starter": ("kubernetes", "local"),
    "deepseek-r1-mi300x": ("systemd", "compose", "kubernetes", "local"),
    "llama-70b-h100-k8s": ("kubernetes",),
    "qwen3-235b-mixed": ("systemd", "compose", "kubernetes"),
    "gpt-oss-120b-single-node": ("compose",),
    "two-services": ("kubernetes", "systemd", "compose"),
}
"""Example -> targets. The first is the spec's own."""

OVERLAYS = ("1k-1k", "1k-8k", "8k-1k", "8k-8k", "auto")
"""Of deepseek-r1-mi300x."""


def copied(name: str, place: Path) -> Path:
    """A copy of an example as it is shipped: without the lock and the state of someone's build in the checkout."""
    shutil.copytree(EXAMPLES / name, place, ignore=shutil.ignore_patterns("disaggc.lock", ".disaggc"))
    return place / "disaggc.yaml"


@dataclass(frozen=True)
class Case:
    """One golden tree."""

    name: str
    files: tuple[Path, ...]
    target: str

    def __str__(self) -> str:
        return f"{self.name}-{self.target}"


def cases() -> tuple[Case, ...]:
    """Every example on every target it fits, and every overlay on its own target."""
    plain = [
        Case(name, (EXAMPLES / name / "disaggc.yaml",), target)
        for name, targets in FITTING.items()
        for target in targets
    ]
    five = EXAMPLES / "deepseek-r1-mi300x"
    overlays = [
        Case(f"deepseek-r1-mi300x+{overlay}", (five / "disaggc.yaml", five / f"{overlay}.yaml"), "systemd")
        for overlay in OVERLAYS
    ]
    return (*plain, *overlays)
