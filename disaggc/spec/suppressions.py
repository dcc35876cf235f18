"""Comments `# disaggc: ignore[DGC412] reason`: found in the text, applied to placed diagnostics.

A comment after a value speaks of its own line; one on its own line speaks of the next line that is neither blank nor a
comment. Only warnings and notes can be suppressed, and the errors a rule allows.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from disaggc.diagnostics import CODES, Code, Diagnostic, Severity, SourceSpan
from disaggc.spec.findings import finding
from disaggc.spec.near import nearest
from disaggc.spec.yaml_source import Parsed

_COMMENT = re.compile(r"#[ \t]*disaggc:[ \t]*ignore(?P<rest>[^\r\n]*)")
_REST = re.compile(r"\[(?P<codes>[^\]]*)\](?P<reason>.*)")
_CODE = re.compile(r"DGC\d{3}|[a-z][a-z0-9-]*")


@dataclass(frozen=True, slots=True)
class Suppression:
    """One comment. codes: ids or kebab-case names as written; line: the line it speaks of."""

    codes: tuple[str, ...]
    reason: str
    span: SourceSpan
    line: int


@dataclass(frozen=True, slots=True)
class Suppressions:
    """All comments of the files of one spec, and what is wrong with their form."""

    found: tuple[Suppression, ...] = ()
    findings: tuple[Diagnostic, ...] = ()

    def __add__(self, other: Suppressions) -> Suppressions:
        return Suppressions(self.found + other.found, self.findings + other.findings)


def find_suppressions(parsed: Parsed) -> Suppressions:
    """The comments of one file; a `#` inside a quoted or block text is none."""
    lines = parsed.lines
    found: list[Suppression] = []
    findings: list[Diagnostic] = []
    if "disaggc:" not in lines.text:
        return Suppressions()
    ranges = sorted(parsed.scalars)
    starts = [start for start, _ in ranges]
    for match in _COMMENT.finditer(lines.text):
        at = match.start()
        before = bisect_right(starts, at) - 1
        if (before >= 0 and at < ranges[before][1]) or (at > 0 and lines.text[at - 1] not in " \t\r\n"):
            continue
        span = lines.span(at, match.end())
        rest = _REST.fullmatch(match["rest"])
        codes = tuple(code.strip() for code in rest["codes"].split(",")) if rest else ()
        reason = rest["reason"].strip() if rest else ""
        problem = _malformed(codes, reason)
        if problem is not None or rest is None:
            example = "write `# disaggc: ignore[DGC412] why this is fine here`"
            findings.append(
                finding("DGC131", problem or "the comment names no code in brackets", span, help=example)
            )
            continue
        found.append(Suppression(codes, reason, span, _subject(parsed, span, found)))
    return Suppressions(tuple(found), tuple(findings))


def _malformed(codes: tuple[str, ...], reason: str) -> str | None:
    if not codes:
        return "the comment names no code in brackets"
    for code in codes:
        if not _CODE.fullmatch(code):
            return f"`{code[:40]}` is not a code" if code else "the comment names no code in its brackets"
    return None if reason else "the comment gives no reason"


def _subject(parsed: Parsed, span: SourceSpan, above: Sequence[Suppression]) -> int:
    """The line a comment speaks of. A comment right above in the same block of comments already found it."""
    lines = parsed.lines
    if lines.line_text(span.line)[: span.column - 1].strip():
        return span.line
    if above and above[-1].span.line < span.line < above[-1].line:
        return above[-1].line
    for line in range(span.line + 1, lines.count + 1):
        text = lines.line_text(line).strip()
        if text and not text.startswith("#"):
            return line
    return span.line


def apply_suppressions(
    diagnostics: Iterable[Diagnostic],
    suppressions: Suppressions,
    *,
    codes: Iterable[Code] = tuple(CODES.values()),
    suppressible_errors: Collection[str] = frozenset(),
) -> tuple[Diagnostic, ...]:
    """The placed diagnostics without the suppressed ones, plus what is wrong with the comments.

    codes: every code that exists, for names and misspellings. suppressible_errors: ids of errors that may be.
    """
    known = tuple(codes)
    names = {code.name: code.id for code in known} | {code.id: code.id for code in known}
    by_place: dict[tuple[str, int, str], tuple[int, str]] = {}
    remarks = list(suppressions.findings)
    unused: dict[tuple[int, str], Suppression] = {}
    for number, comment in enumerate(suppressions.found):
        for written in comment.codes:
            if written not in names:
                remarks.append(_unknown(written, comment, names))
                continue
            by_place[comment.span.file, comment.line, names[written]] = (number, written)
            unused[number, written] = comment
    kept: list[Diagnostic] = []
    for diagnostic in diagnostics:
        span = diagnostic.span
        hit = by_place.get((span.file, span.line, diagnostic.code)) if span else None
        if hit is None:
            kept.append(diagnostic)
            continue
        unused.pop(hit, None)
        if diagnostic.severity is Severity.ERROR and diagnostic.code not in suppressible_errors:
            kept.append(
                replace(diagnostic, notes=(*diagnostic.notes, "an error of this kind cannot be suppressed"))
            )
    for (_, written), comment in unused.items():
        message = f"the comment suppresses no `{written}` on line {comment.line}"
        kept.append(
            Diagnostic(
                "DGC130",
                Severity.WARNING,
                message,
                span=comment.span,
                help="remove it, or move it to its line",
            )
        )
    return (*kept, *remarks)


def _unknown(written: str, comment: Suppression, names: Collection[str]) -> Diagnostic:
    near = nearest(written, names)
    hint = f"did you mean `{near}`?" if near else "`disaggc explain` lists the codes"
    return finding("DGC131", f"no diagnostic is called `{written}`", comment.span, help=hint)
