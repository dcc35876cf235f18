"""Names of units, services and objects, from plan addresses. Always prefixed, so that none can hide a user's."""

from __future__ import annotations

import hashlib
import re

from disaggc.emit.engine_part import EnginePart
from disaggc.ir.plan import ServicePlan

PREFIX = "disaggc"


def engine_unit(part: EnginePart) -> str:
    """`disaggc-chat-prefill@0.service`; the later nodes of a replica carry their rank, `@0.1`."""
    instance = f"{part.replica.index}.{part.slot.rank}" if part.ranked else str(part.replica.index)
    return f"{PREFIX}-{part.service.name}-{part.pool_name}@{instance}.service"


def proxy_unit(service: ServicePlan, index: int) -> str:
    """`disaggc-chat-proxy@0.service`."""
    return f"{PREFIX}-{service.name}-proxy@{index}.service"


def label_name(*parts: str, limit: int = 63) -> str:
    """An RFC 1123 label of at most `limit` characters; a shortened or changed one ends in a digest of the whole."""
    whole = "-".join((PREFIX, *parts))
    plain = re.sub(r"[^a-z0-9-]+", "-", whole.lower()).strip("-")
    if plain == whole and len(plain) <= limit:
        return plain
    mark = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{plain[: limit - 9].rstrip('-')}-{mark}"
