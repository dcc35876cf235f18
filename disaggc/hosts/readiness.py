"""Whether a URL answers and whether a port is free, on this machine. Knows no plan and no supervisor."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

ANSWER_S = 4.0


def answers(url: str) -> bool:
    """Whether the address answers 200 in time. No proxy of the environment stands between: it is this machine."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=ANSWER_S) as answer:  # scheme and host are ours
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError, ValueError):
        return False


def taken(port: int) -> bool:
    """Whether something on this machine listens on the loopback port already."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
