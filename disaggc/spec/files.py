"""Files that a spec is made of: read with a size limit, decoded strictly, refused with a sentence. Parses nothing."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from disaggc.units import format_bytes

SPEC_LIMIT = 5 * 2**20
"""Largest YAML file that is read; a spec of a thousand nodes has 100 kB."""

_BOMS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Why a file cannot be used, and what to do. line and column where the content is at fault."""

    message: str
    help: str | None = None
    line: int = 1
    column: int = 1


_DIRECTORY = Unreadable("this is a directory, a file is wanted", "name a file in it, e.g. `disaggc.yaml`")
_SPECIAL = Unreadable("this is not a regular file", "give its content on standard input with `-f -`")
Reader = Callable[[Path, int], "bytes | Unreadable"]
"""Reads a file up to a limit in bytes; the parameter through which tests and editors give other contents."""


def read_file(path: Path, limit: int) -> bytes | Unreadable:
    """The content, or why not. A file above the limit is refused by its size, without reading it."""
    if str(path) == "-":
        return _read_stdin(limit)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        return _refused(problem)
    except ValueError:
        return Unreadable("the path contains a NUL character")
    try:
        return _read_regular(descriptor, limit)
    except OSError as problem:
        return _refused(problem)
    finally:
        os.close(descriptor)


def _read_regular(descriptor: int, limit: int) -> bytes | Unreadable:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return _DIRECTORY if stat.S_ISDIR(status.st_mode) else _SPECIAL
    if status.st_size > limit:
        return _too_large(float(status.st_size), limit)
    with os.fdopen(descriptor, "rb", closefd=False) as stream:
        content = stream.read(limit + 1)
    return content if len(content) <= limit else _too_large(float(len(content)), limit)


def _read_stdin(limit: int) -> bytes | Unreadable:
    content = sys.stdin.buffer.read(limit + 1)
    return content if len(content) <= limit else _too_large(float(len(content)), limit)


def _too_large(size: float, limit: int) -> Unreadable:
    return Unreadable(f"the file has {format_bytes(size)}, at most {format_bytes(float(limit))} are read")


def _refused(problem: OSError) -> Unreadable:
    reasons = {
        errno.ENOENT: "the file does not exist",
        errno.ENOTDIR: "a part of the path is not a directory",
        errno.EACCES: "the file may not be read (permission denied)",
        errno.ELOOP: "the path runs through a loop of symbolic links",
        errno.ENAMETOOLONG: "the path is too long",
        errno.ENXIO: "this is not a regular file",
    }
    reason = reasons.get(problem.errno or 0)
    return Unreadable(reason or f"the file cannot be read ({(problem.strerror or 'unknown reason').lower()})")


def decode(content: bytes) -> str | Unreadable:
    """UTF-8 text without its byte-order mark; anything else is named for what it is."""
    for mark, name in _BOMS:
        if content.startswith(mark):
            return Unreadable(f"the file is {name}, UTF-8 is wanted", "save it as UTF-8")
    nul = content.find(b"\0")
    if nul >= 0:
        line, column = _position(content, nul)
        return Unreadable("the file is binary (it contains a NUL byte)", None, line, column)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line, column = _position(content, problem.start)
        byte = content[problem.start]
        return Unreadable(f"byte 0x{byte:02x} is not UTF-8 text", "save the file as UTF-8", line, column)


def _position(content: bytes, offset: int) -> tuple[int, int]:
    """Line and column of a byte, by the same line ends as `Lines`."""
    lines = re.split(r"\r\n|\r|\n", content[:offset].decode("utf-8-sig", "replace"))
    return len(lines), len(lines[-1]) + 1
