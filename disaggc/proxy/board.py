"""Numbers shared by all processes of one proxy: a flat array of floats in shared memory, one region a writer.

Each worker writes only its own region, so there are no locks; readers add the regions up. The control process writes
the common region (engine health and load). Knows no HTTP and no metric names beyond its own cells.
"""

from __future__ import annotations

import mmap
import os
import tempfile

from disaggc.traffic.sketch import BINS

MAX_REPLICAS = 512
MAX_CLASSES = 16
TIME_BINS = 94
"""Four to the octave from 0.25 ms to 2,048 s, one below and one above."""


class Total:
    """Cells of one worker that are neither by class nor by replica."""

    CONNECTIONS = 0
    CONNECTIONS_OPEN = 1
    REQUESTS_OPEN = 2
    STREAMS_OPEN = 3
    QUEUE = 4
    TOKENS_OPEN = 5
    TOKENS_SO_FAR = 6
    REFUSED_AUTH = 7
    REFUSED_BAD = 8
    REFUSED_LENGTH = 9
    REFUSED_QUEUE = 10
    REFUSED_NO_REPLICA = 11
    RELEASES = 12
    RELEASES_FAILED = 13
    LEASES_LEFT = 14
    STALE_RETRIES = 15
    PARAMS_STRIPPED = 16
    PARAMS_SCRUBBED = 17
    LOG_DROPPED = 18
    TOKENIZE_CALLS = 19
    GENERATION = 20
    ACCEPT_FULL = 21
    WAITED_FOR_ENGINE = 22
    OTHER_REQUESTS = 23
    SIZE = 24


class PerClass:
    """Counters of one worker by workload class."""

    REQUESTS = 0
    OK = 1
    CLIENT_ERROR = 2
    SERVER_ERROR = 3
    CLIENT_GONE = 4
    BROKEN_STREAM = 5
    RETRIES = 6
    REMOTE = 7
    LOCAL = 8
    FALLBACK = 9
    TOKENS_IN = 10
    TOKENS_OUT = 11
    TOKENS_CACHED = 12
    SIZE = 16


class Timing:
    """Time histograms by workload class; each takes TIME_BINS cells and one for its sum."""

    TTFT = 0
    ITL = 1
    E2E = 2
    QUEUE = 3
    PREFILL = 4
    HANDOFF = 5
    DECODE_FIRST = 6
    SIZE = 7


class Length:
    """Length sketches by workload class; each takes BINS cells and one for its sum."""

    INPUT = 0
    OUTPUT = 1
    SIZE = 2


class PerReplica:
    """Cells of one worker by replica slot."""

    REQUESTS = 0
    FAILURES = 1
    REQUESTS_OPEN = 2
    WORK = 3
    CONNECTS = 4
    CIRCUIT_OPENED = 5
    PREFILLS = 6
    DECODES = 7
    SIZE = 8


class Shared:
    """Cells of the common region by replica slot, written by the control process."""

    HEALTHY = 0
    RUNNING = 1
    WAITING = 2
    KV_USAGE = 3
    SEEN_AT = 4
    SIZE = 8


_TIMING_CELLS = Timing.SIZE * (TIME_BINS + 1)
_LENGTH_CELLS = Length.SIZE * (BINS + 1)
_CLASS_CELLS = PerClass.SIZE + _TIMING_CELLS + _LENGTH_CELLS
_CLASSES_AT = Total.SIZE
_REPLICAS_AT = _CLASSES_AT + MAX_CLASSES * _CLASS_CELLS
WORKER_CELLS = _REPLICAS_AT + MAX_REPLICAS * PerReplica.SIZE
SHARED_CELLS = MAX_REPLICAS * Shared.SIZE


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
