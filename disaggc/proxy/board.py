"""Numbers shared by all processes of one proxy: a flat array of floats in shared memory, one region a writer.

Each worker writes only its own region, so there are no locks; readers add the regions up. The control process writes
the common region (engine health and load). Knows no HTTP and no metric names beyond its own cells.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Final

from disaggc.traffic.sketch import BINS

MAX_REPLICAS: Final = 512
MAX_CLASSES: Final = 16
TIME_BINS: Final = 94
"""Four to the octave from 0.25 ms to 2,048 s, one below and one above."""


class Total:
    """Cells of one worker that are neither by class nor by replica."""

    CONNECTIONS: Final = 0
    CONNECTIONS_OPEN: Final = 1
    REQUESTS_OPEN: Final = 2
    STREAMS_OPEN: Final = 3
    QUEUE: Final = 4
    TOKENS_OPEN: Final = 5
    TOKENS_SO_FAR: Final = 6
    REFUSED_AUTH: Final = 7
    REFUSED_BAD: Final = 8
    REFUSED_LENGTH: Final = 9
    REFUSED_QUEUE: Final = 10
    REFUSED_NO_REPLICA: Final = 11
    RELEASES: Final = 12
    RELEASES_FAILED: Final = 13
    LEASES_LEFT: Final = 14
    STALE_RETRIES: Final = 15
    PARAMS_STRIPPED: Final = 16
    PARAMS_SCRUBBED: Final = 17
    LOG_DROPPED: Final = 18
    TOKENIZE_CALLS: Final = 19
    GENERATION: Final = 20
    ACCEPT_FULL: Final = 21
    WAITED_FOR_ENGINE: Final = 22
    OTHER_REQUESTS: Final = 23
    SIZE: Final = 24


class PerClass:
    """Counters of one worker by workload class."""

    REQUESTS: Final = 0
    OK: Final = 1
    CLIENT_ERROR: Final = 2
    SERVER_ERROR: Final = 3
    CLIENT_GONE: Final = 4
    BROKEN_STREAM: Final = 5
    RETRIES: Final = 6
    REMOTE: Final = 7
    LOCAL: Final = 8
    FALLBACK: Final = 9
    TOKENS_IN: Final = 10
    TOKENS_OUT: Final = 11
    TOKENS_CACHED: Final = 12
    SIZE: Final = 16


class Timing:
    """Time histograms by workload class; each takes TIME_BINS cells and one for its sum."""

    TTFT: Final = 0
    ITL: Final = 1
    E2E: Final = 2
    QUEUE: Final = 3
    PREFILL: Final = 4
    HANDOFF: Final = 5
    DECODE_FIRST: Final = 6
    SIZE: Final = 7


class Length:
    """Length sketches by workload class; each takes BINS cells and one for its sum."""

    INPUT: Final = 0
    OUTPUT: Final = 1
    SIZE: Final = 2


class PerReplica:
    """Cells of one worker by replica slot."""

    REQUESTS: Final = 0
    FAILURES: Final = 1
    REQUESTS_OPEN: Final = 2
    WORK: Final = 3
    CONNECTS: Final = 4
    CIRCUIT_OPENED: Final = 5
    PREFILLS: Final = 6
    DECODES: Final = 7
    SIZE: Final = 8


class Shared:
    """Cells of the common region by replica slot, written by the control process."""

    HEALTHY: Final = 0
    RUNNING: Final = 1
    WAITING: Final = 2
    KV_USAGE: Final = 3
    SEEN_AT: Final = 4
    SIZE: Final = 8


_TIMING_CELLS: Final = Timing.SIZE * (TIME_BINS + 1)
_LENGTH_CELLS: Final = Length.SIZE * (BINS + 1)
_CLASS_CELLS: Final = PerClass.SIZE + _TIMING_CELLS + _LENGTH_CELLS
_CLASSES_AT: Final = Total.SIZE
_REPLICAS_AT: Final = _CLASSES_AT + MAX_CLASSES * _CLASS_CELLS
WORKER_CELLS: Final = _REPLICAS_AT + MAX_REPLICAS * PerReplica.SIZE
SHARED_CELLS: Final = MAX_REPLICAS * Shared.SIZE


def class_cell(position: int, cell: int) -> int:
    """Offset of a class counter in a worker's region."""
    return _CLASSES_AT + position * _CLASS_CELLS + cell


def timing_cell(position: int, timing: int) -> int:
    """Offset of a class's time histogram: TIME_BINS counts, then the sum."""
    return _CLASSES_AT + position * _CLASS_CELLS + PerClass.SIZE + timing * (TIME_BINS + 1)


def length_cell(position: int, length: int) -> int:
    """Offset of a class's length sketch: BINS counts, then the sum."""
    return _CLASSES_AT + position * _CLASS_CELLS + PerClass.SIZE + _TIMING_CELLS + length * (BINS + 1)


def replica_cell(slot: int, cell: int) -> int:
    """Offset of a replica's cell in a worker's region."""
    return _REPLICAS_AT + slot * PerReplica.SIZE + cell


class Board:
    """The shared array: a common region, then one region for each worker."""

    def __init__(self, descriptor: int, workers: int) -> None:
        self.descriptor = descriptor
        self.workers = workers
        self._map = mmap.mmap(descriptor, 8 * (SHARED_CELLS + workers * WORKER_CELLS))
        self._cells: memoryview[float] = memoryview(self._map).cast("d")
        self.shared = self._cells[:SHARED_CELLS]

    @classmethod
    def create(cls, workers: int) -> Board:
        """A new board of zeros in an unnamed file, for inheriting by descriptor."""
        with tempfile.TemporaryFile(prefix="disaggc-proxy-") as file:
            descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, 8 * (SHARED_CELLS + workers * WORKER_CELLS))
        return cls(descriptor, workers)

    def region(self, worker: int) -> memoryview[float]:
        """One worker's cells."""
        start = SHARED_CELLS + worker * WORKER_CELLS
        return self._cells[start : start + WORKER_CELLS]

    def total(self, cell: int) -> float:
        """A cell summed over the workers."""
        first = SHARED_CELLS + cell
        return float(sum(self._cells[first + w * WORKER_CELLS] for w in range(self.workers)))

    def row(self, first: int, count: int) -> list[float]:
        """Consecutive cells, each summed over the workers."""
        rows = [self.region(w)[first : first + count].tolist() for w in range(self.workers)]
        return [sum(column) for column in zip(*rows, strict=True)]

    def shared_cell(self, slot: int, cell: int) -> float:
        """A replica's cell of the common region."""
        return float(self.shared[slot * Shared.SIZE + cell])

    def set_shared(self, slot: int, cell: int, value: float) -> None:
        """Write a replica's cell of the common region (control process only)."""
        self.shared[slot * Shared.SIZE + cell] = value

    def clear_gauges(self, worker: int) -> None:
        """A worker died: what it had in flight is gone, what it counted stays."""
        region = self.region(worker)
        for cell in (
            Total.CONNECTIONS_OPEN, Total.REQUESTS_OPEN, Total.STREAMS_OPEN,
            Total.QUEUE, Total.TOKENS_OPEN, Total.TOKENS_SO_FAR,
        ):  # fmt: skip
            region[cell] = 0.0
        for slot in range(MAX_REPLICAS):
            region[replica_cell(slot, PerReplica.REQUESTS_OPEN)] = 0.0
            region[replica_cell(slot, PerReplica.WORK)] = 0.0
