"""What the rows of a fit can tell apart: singular values of the rows in relative terms. Knows numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_SEEN = 0.2
"""Part of a direction from which a constant is named in it."""
BLURRED = 30.0
"""Condition number from which one run's noise can move two constants against each other by more than they are."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """How well rows tell the constants of their columns apart.

    condition: largest over smallest singular value, columns at equal length. weakest: constants of the direction that
    the runs see least; moved along it together, they leave every run's prediction almost as it was.
    """

    condition: float
    weakest: tuple[str, ...]

    @property
    def blurred(self) -> bool:
        """The runs do not tell the constants of the weakest direction apart."""
        return self.condition > BLURRED


def geometry_of(names: Sequence[str], rows: Sequence[Sequence[float]], measured: Sequence[float]) -> Geometry:
    """Of the rows divided by what was measured, each column scaled to length one."""
    import numpy as np  # noqa: PLC0415 - heavy, and only a fit needs it

    scaled = np.array([[x / y for x in row] for row, y in zip(rows, measured, strict=True)])
    lengths = np.sqrt((scaled * scaled).sum(axis=0))
    _, values, directions = np.linalg.svd(scaled / np.maximum(lengths, 1e-300), full_matrices=True)
    least = float(values[-1]) if len(values) == len(names) else 0.0
    condition = float(values[0]) / least if least > 1e-12 * float(values[0]) else float("inf")
    seen = [name for name, part in zip(names, directions[-1], strict=True) if abs(part) >= _SEEN]
    return Geometry(condition, tuple(seen))
