"""The HTTP client of probes and canaries: the key and the TLS that requests have, a connection for each question."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import aiohttp

from disaggc.proxy.engine_tls import engine_tls
from disaggc.proxy.service import SecretError, read_secret
from disaggc.routing.table import RoutingTable


@contextlib.asynccontextmanager
async def engine_session(table: RoutingTable) -> AsyncIterator[aiohttp.ClientSession]:
    """A session for the engines of a table."""
    headers = {}
    with contextlib.suppress(SecretError):
        if table.api_key is not None:
            headers["Authorization"] = f"Bearer {read_secret(table.api_key).decode('latin-1')}"
    connector = aiohttp.TCPConnector(force_close=True, ssl=engine_tls(table) or True)
    async with aiohttp.ClientSession(headers=headers, connector=connector, trust_env=False) as session:
        yield session
