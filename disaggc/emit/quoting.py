"""Text into each format, one filter per place. Refuses what a format cannot carry; knows no plan and no template."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping

LONGEST_ARGUMENT = 131_071
"""Bytes of one argument or `NAME=value`: Linux refuses longer ones at exec (MAX_ARG_STRLEN with its NUL)."""

LONGEST_KEY = 1_024
"""Characters of a simple key, quotes and escapes included (YAML 1.1, section 7.3.3)."""

_NAMED_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_PLAIN_KEY = re.compile(r"[a-z][A-Za-z_]{2,}")
_NOT_TEXT = frozenset({"yes", "true", "false", "off", "null"})
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:,+=@-]+")
_NOT_IN_EXECUTABLE = frozenset("\"'\\$\x7f")


class UnsafeTextError(ValueError):
    """The text cannot stand in this place without changing its meaning; the message says why."""


def process_text(text: str) -> str:
    """The same text, if a process can be given it: UTF-8 without NUL, not longer than Linux passes on."""
    if "\x00" in text:
        raise UnsafeTextError("holds a NUL character, which ends every argument and variable")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise UnsafeTextError("holds half of a surrogate pair, which UTF-8 cannot write") from None
    if size > LONGEST_ARGUMENT:
        raise UnsafeTextError(f"is {size:,} bytes long, one argument may have {LONGEST_ARGUMENT:,}")
    return text


def _escaped(char: str) -> str:
    if char in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    # Direction marks and other invisible characters are spelled out, so that a reviewer sees them.
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _word(text: str) -> str:
    """As it stands where that is plain to see, else quoted."""
    if _PLAIN_WORD.fullmatch(text):
        return text
    if '"' in text and "'" not in text:
        # JSON stays readable in single quotes; systemd knows the same escapes inside both.
        return "'" + "".join(char if char == '"' else _escaped(char) for char in text) + "'"
    return _quoted(text)


def _quoted(text: str) -> str:
    return '"' + "".join(map(_escaped, text)) + '"'


def unit_argument(text: str) -> str:
    """A word of ExecStart=: quoted, `%` kept from specifiers, `$` kept from variables."""
    return _word(process_text(text).replace("%", "%%").replace("$", "$$"))


def unit_executable(text: str) -> str:
    """The first word of ExecStart=: systemd refuses relative paths here, quotes, backslashes and control characters."""
    if not text.startswith("/"):
        raise UnsafeTextError("is not an absolute path, which systemd needs")
    if any(char in _NOT_IN_EXECUTABLE or ord(char) < 0x20 for char in text):
        raise UnsafeTextError(
            "holds a quote, backslash, dollar or control character, which systemd refuses in an executable"
        )
    parts = text.split("/")
    if text.endswith("/") or ".." in parts or len(text.encode("utf-8", "replace")) > 4095:
        raise UnsafeTextError("is not the path of a file")
    if any(len(part.encode("utf-8", "replace")) > 255 for part in parts):
        raise UnsafeTextError("has a part longer than the 255 bytes of a file name")
    return _word(process_text(text).replace("%", "%%"))


def unit_assignment(name: str, value: str) -> str:
    """`NAME=value` for Environment=: quoted, `%` kept from specifiers; `$` means nothing there."""
    return _word(process_text(f"{name}={value}").replace("%", "%%"))


def unit_line(text: str) -> str:
    """The rest of a line that systemd takes as it stands: `%` kept from specifiers, nothing invisible."""
    if not text.isprintable() or text != text.strip() or text.endswith("\\"):
        raise UnsafeTextError("holds characters that cannot stand unquoted in a unit")
    return process_text(text).replace("%", "%%")


def ini_word(text: str) -> str:
    """A word of a supervisord `command=`: quoted for its shlex, `%` kept from expansions, comment marks from comments.

    supervisord reads one line, cuts it at ` ;` and ` #` even inside quotes, expands `%`, then splits it like a shell.
    """
    if any(not char.isprintable() for char in text):
        raise UnsafeTextError(
            "holds a line break or another invisible character, which supervisord cannot pass on"
        )
    quoted = shlex.quote(process_text(text)) if not _PLAIN_WORD.fullmatch(text) else text
    return re.sub(r"(\s)(?=[;#])", r"\1''", quoted).replace("%", "%%")


def yaml_value(value: object) -> str:
    """Any JSON-like value in YAML's flow style: double quotes, everything invisible as an escape."""
    match value:
        case str():
            return _quoted(value)
        case None | bool() | int() | float():
            return json.dumps(value)
        case Mapping():
            return "{" + ", ".join(f"{_key(str(k))}: {yaml_value(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(yaml_value, value)) + "]"
        case _:
            raise TypeError(f"{type(value).__name__} has no YAML form here")


def _key(text: str) -> str:
    """A key as it stands where no parser could take it for anything but text."""
    if _PLAIN_KEY.fullmatch(text) and text not in _NOT_TEXT:
        return text
    quoted = _quoted(text)
    if len(quoted) > LONGEST_KEY:
        raise UnsafeTextError(f"is longer than the {LONGEST_KEY} characters a YAML key may have")
    return quoted


def compose_value(value: object) -> str:
    """The same for a compose file, where `$` starts a variable in every value."""
    return yaml_value(doubled_dollars(value))


def doubled_dollars(value: object) -> object:
    """`$` as `$$` in every text of the value: how compose, and Kubernetes in commands and environment, escape it."""
    match value:
        case str():
            return value.replace("$", "$$")
        case Mapping():
            return {key: doubled_dollars(item) for key, item in value.items()}
        case list() | tuple():
            return [doubled_dollars(item) for item in value]
        case _:
            return value


def yaml_block(text: str, width: int) -> str:
    """A text of many lines as a block scalar, `width` spaces in: only for ASCII that a block keeps as it is."""
    lines = text.splitlines()
    if not text.isascii() or "\n".join(lines) + "\n" != text or not lines[0].strip() or lines[0][0] == " ":
        raise UnsafeTextError("is not plain lines of ASCII")
    if any(not line.isprintable() or not line.strip() for line in lines):
        raise UnsafeTextError("holds an empty line or a control character")
    return "|\n" + "\n".join(" " * width + line for line in lines)


FILTERS: Mapping[str, Callable[..., str]] = {
    "ini_word": ini_word,
    "unit_argument": unit_argument,
    "unit_assignment": unit_assignment,
    "unit_executable": unit_executable,
    "unit_line": unit_line,
    "yaml": yaml_value,
    "yaml_block": yaml_block,
    "compose": compose_value,
}
"""What templates may use; a template that needs none of them places numbers or checked names."""
