"""The text of a trace -> its rows: CSV with a header, or a JSON object a line. Knows no column."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest


class TraceError(ValueError):
    """The text is not a trace; the message says where and why. Becomes a diagnostic at the field."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


def trace_rows(text: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Every request with its line."""
    body = text.lstrip("\ufeff \t\r\n")
    if not body:
        raise TraceError("the trace is empty")
    if body.startswith("["):
        raise TraceError(
            "the trace is a JSON list, an object on each line is wanted (`jq -c '.[]'` writes that)"
        )
    return _json_rows(text) if body.startswith("{") else _csv_rows(text)


def _csv_rows(text: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    # newline=None: also the line ends of old Macs
    reader = csv.reader(io.StringIO(text.lstrip("\ufeff"), newline=None), delimiter=_delimiter(text))
    line, header = 0, None
    try:
        for fields in reader:
            line = reader.line_num
            if not fields:
                continue
            if header is None:
                header = [name.strip() for name in fields]
                if len(set(header)) < len(header):
                    twice = next(name for name in header if header.count(name) > 1)
                    raise TraceError(f"the column `{twice[:30]}` stands twice", line)
                continue
            if len(fields) > len(header):
                raise TraceError(f"line {line} has {len(fields)} fields, the header {len(header)}", line)
            yield line, dict(zip_longest(header, fields))
    except csv.Error as problem:
        if "field larger" in str(problem):
            raise TraceError(f"line {line + 1}: a field is longer than any number", line + 1) from None
        raise TraceError(f"line {line + 1}: {problem}", line + 1) from None


def _delimiter(text: str) -> str:
    """Comma; where the header has none, the semicolon or the tab it has."""
    header = text.lstrip("\ufeff \r\n").split("\n", 1)[0]
    return next((mark for mark in (",", ";", "\t") if mark in header), ",")


def _json_rows(text: str) -> Iterator[tuple[int, Mapping[str, object]]]:
    for line, content in enumerate(text.split("\n"), 1):
        if not content.strip():
            continue
        try:
            row = json.loads(content)
        except (ValueError, RecursionError):
            raise TraceError(f"line {line} is not JSON", line) from None
        if not isinstance(row, dict):
            raise TraceError(f"line {line} is not a JSON object", line)
        yield line, row
