"""Sets of module names as quantisation configs write them: plain names, prefixes, globs, and `re:` patterns.

Knows no architecture. Patterns come from users' files, so they are bounded before they are run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

_EVERY_LINEAR = frozenset({"Linear", "FusedMoE", "LinearBase"})
_LONGEST = 200
_MOST_REPEATS = 5
_QUANTIFIED_GROUP = re.compile(r"\)\s*[*+{]")
_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.")


@dataclass(frozen=True, slots=True)
class ModuleSet:
    """Names given by a list; `matches` is true for a module that is named, lies under a name, or fits a pattern."""

    names: tuple[str, ...]
    everything: bool = False

    @classmethod
    def all(cls) -> ModuleSet:
        """Every linear layer."""
        return cls((), everything=True)

    @classmethod
    def targets(cls, names: tuple[str, ...]) -> ModuleSet:
        """Targets of a compressed-tensors group: class names stand for every linear layer."""
        return cls(
            tuple(n for n in names if n not in _EVERY_LINEAR), everything=bool(_EVERY_LINEAR & set(names))
        )

    @property
    def names_head(self) -> bool:
        """Whether the output head is named outright; no tool takes it by default."""
        return any("lm_head" in name for name in self.names)

    def matches(self, modules: tuple[str, ...]) -> bool:
        """Whether any of a module's spellings is in the set."""
        return any(_fits(pattern, modules) for pattern in self.names)


NO_MODULES = ModuleSet(())


def _fits(pattern: str, modules: tuple[str, ...]) -> bool:
    if pattern.startswith("re:"):
        return _fits_regex(pattern[3:], modules)
    bare = _bare(pattern)
    if "*" in bare:
        return any(fnmatchcase(_bare(m), bare) or fnmatchcase(_bare(m), f"{bare}.*") for m in modules)
    return any(
        _bare(m) == bare or _bare(m).startswith(f"{bare}.") or f".{bare}." in f".{m}." for m in modules
    )


def _bare(name: str) -> str:
    """Without the outer module, which differs between text-only and multimodal spellings."""
    return next((name[len(p) :] for p in _PREFIXES if name.startswith(p)), name)


def _fits_regex(pattern: str, modules: tuple[str, ...]) -> bool:
    """compressed-tensors matches from the start of the name; a pattern that could run away matches nothing."""
    repeats = pattern.count("*") + pattern.count("+")
    if len(pattern) > _LONGEST or repeats > _MOST_REPEATS or _QUANTIFIED_GROUP.search(pattern):
        return False
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return any(compiled.match(m) or compiled.match(f"language_model.{m}") for m in modules)
