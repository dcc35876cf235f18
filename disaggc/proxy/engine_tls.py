"""TLS towards the engines, the same for requests and for probes. Knows only the files the table names."""

from __future__ import annotations

import ssl

from disaggc.routing.table import RoutingTable


def engine_tls(table: RoutingTable) -> ssl.SSLContext | None:
    """The context engines are spoken to with; None where they speak plainly."""
    files = table.engine_tls
    if files is None:
        return None
    context = ssl.create_default_context(cafile=files.ca)
    if files.certificate:
        context.load_cert_chain(files.certificate, files.key)
    return context
