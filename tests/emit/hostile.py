"""Texts that break out of files when quoting is wrong."""

from __future__ import annotations

from hypothesis import strategies as st

HOSTILE = (
    "",
    " ",
    "a b",
    " leading and trailing ",
    "line\nbreak",
    "\n[Service]\nExecStartPre=/bin/evil\n",
    "carriage\rreturn\r\n",
    'double " quote',
    "single ' quote",
    "both ' and \" quotes",
    "back\\slash",
    "ends in backslash\\",
    "%n %% %i %",
    "$HOME ${HOME} $$ $",
    "$(POD_IP) $$(X)",
    "${{ secrets.X }}",
    "{{ view }} {% raw %} {# x #}",
    "`id`",
    "; rm -rf /",
    ";",
    "# comment",
    "-",
    "--flag",
    "-x",
    "a: b",
    "- item",
    "{a: b}",
    "[a, b]",
    "*alias",
    "&anchor",
    "!!python/object:x",
    "| block",
    "> folded",
    "%YAML 1.1",
    "---",
    "...",
    "yes",
    "null",
    "1e3",
    "0o17",
    "22:30",
    "\t tab",
    "\u202eright-to-left\u2066",
    "\u200fmark",
    "zero\u200bwidth",
    "next\x85line",
    "paragraph\u2029 line\u2028",
    "\ufeffbom",
    "emoji \U0001f600 \U000e0001",
    "bell\x07 escape\x1b[31m delete\x7f",
    "c1\x9b",
    "x" * 10_000,
    "\u00e9" * 5_000,
)

_PIECES = st.sampled_from(
    [
        "\n",
        "\r",
        '"',
        "'",
        "\\",
        "%",
        "$",
        "${",
        "$(",
        "}",
        "{{",
        "}}",
        "{%",
        "`",
        ";",
        "#",
        "=",
        ":",
        " ",
        "\t",
        "\u202e",
    ]
)


def texts() -> st.SearchStrategy[str]:
    """Texts a process can be given: no NUL, no lone surrogates."""
    plain = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\x00"), max_size=40)
    mixed = st.lists(_PIECES | st.sampled_from("ab1-/"), max_size=12).map("".join)
    return st.sampled_from(HOSTILE) | plain | mixed


def any_texts() -> st.SearchStrategy[str]:
    """The same, and now and then what no process can be given."""
    return (
        texts()
        | texts().map(lambda text: text + "\x00")
        | st.sampled_from(["\ud800", "x\x00y", "y" * 140_000])
    )
