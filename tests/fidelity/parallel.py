"""One piece of work over many items in forked processes, which inherit the items and send back results."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T, R = TypeVar("T"), TypeVar("R")

_TASK: list[tuple[Callable[[Any], Any], Sequence[Any]]] = []


def mapped(work: Callable[[T], R], items: Sequence[T], jobs: int) -> list[R]:
    """work(item) of every item, in order."""
    if jobs <= 1 or len(items) < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return [work(item) for item in items]
    _TASK.append((work, items))
    try:
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            return pool.map(_call, range(len(items)), chunksize=max(1, len(items) // (8 * jobs)))
    finally:
        _TASK.pop()


def _call(index: int) -> Any:
    work, items = _TASK[-1]
    return work(items[index])
