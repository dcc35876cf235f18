"""Whether a URL answers and whether a port is free, on this machine. Knows no plan and no supervisor."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Literal

ANSWER_S = 4.0
LONGEST = 1 << 20
"""Bytes of a report."""


Answer = Literal["ready", "refused", "silent", "unready"]
"""200; no connection; nothing in time; any other answer, e.g. 503 or the end of the connection."""


def _opener() -> urllib.request.OpenerDirector:
    """No proxy of the environment stands between: it is this machine."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answer(url: str) -> Answer:
    """What the address says."""
    try:
        with _opener().open(url, timeout=ANSWER_S) as said:  # scheme and host are ours
            return "ready" if said.status == 200 else "unready"
    except TimeoutError:
        return "silent"
    except urllib.error.URLError as problem:
        if isinstance(problem.reason, TimeoutError):
            return "silent"
        return "refused" if isinstance(problem.reason, ConnectionRefusedError) else "unready"
    except (OSError, ValueError, http.client.HTTPException):
        return "unready"


def reported(url: str) -> Mapping[str, object]:
    """The JSON object that the address answers 200 with; empty where it does not."""
    try:
        with _opener().open(url, timeout=ANSWER_S) as said:
            document = json.loads(said.read(LONGEST))
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    return document if isinstance(document, dict) else {}


def taken(port: int) -> bool:
    """Whether something on this machine listens on the loopback port already."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
