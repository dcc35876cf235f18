"""One line of the access log. Never a prompt, an answer, or a key.

Apart from what writes it, as msgspec makes this class and mypyc must not.
"""

from __future__ import annotations

import msgspec


class Entry(msgspec.Struct, rename={"workload": "class"}, gc=False):
    """What there is to say about one request, as its line has it; times in milliseconds, `time` in s since 1970."""

    time: float = 0.0
    request: str = ""
    method: str = ""
    path: str = ""
    workload: str = ""
    status: int = 0
    outcome: str = ""
    prefill: str = ""
    decode: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    retries: int = 0
    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    ttft_ms: float = 0.0
    total_ms: float = 0.0
