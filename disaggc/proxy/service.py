"""What one worker knows of the service it serves: table, fleet, admission, keys, learned lengths, log.

One object per worker, replaced in its parts when a new table arrives. Knows no sockets of clients.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import resource
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Final

from disaggc.proxy.accesslog import AccessLog
from disaggc.proxy.board import MAX_CLASSES, Total
from disaggc.proxy.bodies import Bodies
from disaggc.proxy.bounds import bounds_of
from disaggc.proxy.fleet import Fleet, WorkerView
from disaggc.proxy.gate import Gate
from disaggc.proxy.releases import Releases
from disaggc.routing.length import LengthRatio
from disaggc.routing.limits import ApiKeySource
from disaggc.routing.prefix import PrefixMemory
from disaggc.routing.table import RoutingTable

_LOG = logging.getLogger(__name__)
OWN_DESCRIPTORS: Final = 32
"""What a worker has open besides connections (link, board, logs, listener, event loop), with room."""
UNNAMED: Final = RoutingTable.model_fields["default_class"].default
OUTPUT_PRIOR: Final = 256.0
"""Tokens an answer is expected to have until some were seen."""


class SecretError(ValueError):
    """A key's source is empty or cannot be read."""


def read_secret(source: ApiKeySource) -> bytes:
    """The secret; SecretError when its source has none, so that a missing key never means an open door."""
    if source.env is not None:
        text = os.environ.get(source.env, "")
    else:
        try:
            text = Path(source.file or "").read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as exc:
            raise SecretError(f"the key file cannot be read: {exc}") from None
    if not text:
        raise SecretError(f"the key in {'`' + source.env + '`' if source.env else 'the key file'} is empty")
    return text.encode()


def _key_of(table: RoutingTable) -> bytes | None:
    return read_secret(table.api_key) if table.api_key else None


def clients_of(descriptors: int) -> int:
    """Client connections that so many descriptors are enough for, each with both its legs; -1 = no limit."""
    if descriptors < 0:
        return sys.maxsize
    return max(1, (descriptors - OWN_DESCRIPTORS) // 3)


def class_names(table: RoutingTable) -> tuple[str, ...]:
    """Workload classes in the order of their cells: first the one of requests that name none."""
    default = table.default_class
    if len(table.classes) == 1 and default == UNNAMED:
        (default,) = table.classes
    names = [name for name in sorted(table.classes) if name != default]
    return (default, *names)[:MAX_CLASSES]


class Service:
    """Everything that requests share."""

    def __init__(
        self, table: RoutingTable, slots: Mapping[str, int], view: WorkerView, *, log: AccessLog
    ) -> None:
        self.view = view
        self.tally = view.tally
        self.outbox = view.outbox
        self.log = log
        self.lengths = LengthRatio()
        self.mean_output = OUTPUT_PRIOR
        self.draining = False
        self.bodies = Bodies()
        self.releases = Releases()
        self.prefixes = PrefixMemory()
        key = _key_of(table)
        self.fleet = Fleet(table, slots, view)
        self.gate = Gate(self.fleet, view.tally, workers=view.board.workers)
        self._adopt(table, key)

    def use(self, table: RoutingTable, slots: Mapping[str, int]) -> None:
        """Put a table in effect, all of it or nothing; running requests keep the replicas they have."""
        key = _key_of(table)
        self.fleet = Fleet(table, slots, self.view, earlier=self.fleet)
        self._adopt(table, key)
        self.gate.use(self.fleet)
        self.gate.pump(monotonic())

    def _adopt(self, table: RoutingTable, key: bytes | None) -> None:
        self.table = table
        self.bounds = bounds_of(table)
        self.max_clients = min(
            table.limits.connections, clients_of(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        )
        self._accepted = b""
        self._key_digest = hashlib.sha256(key).digest() if key is not None else None
        names = class_names(table)
        self.class_positions = {name.encode(): position for position, name in enumerate(names)}
        self.class_names = names
        self.priorities = [table.classes[name].priority if name in table.classes else 0 for name in names]
        self.class_header = table.class_header.encode()
        self.tally.cells[Total.GENERATION] = table.generation

    def authorised(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether the client presented the key; compared in constant time, lengths included."""
        if self._key_digest is None:
            return True
        authorization = headers.get(b"authorization", b"")
        if authorization and hmac.compare_digest(authorization, self._accepted):
            return True
        scheme, _, token = authorization.partition(b" ")
        given = token.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        good = hmac.compare_digest(hashlib.sha256(given).digest(), self._key_digest)
        if good and scheme.lower() == b"bearer":
            self._accepted = authorization
        return good

    def report_bug(self) -> None:
        """Say where a request met a bug; a traceback has code, never a prompt."""
        kind, _, trace = sys.exc_info()
        _LOG.error("a request met a bug: %s\n%s", kind, "".join(traceback.format_tb(trace)))

    def learn_output(self, tokens: int) -> None:
        """One answer had this many tokens, as the engine says: more than the context holds is not believed."""
        self.mean_output += (min(tokens, self.bounds.max_model_len) - self.mean_output) / 256
