"""Where text goes: the result to stdout, everything said about it to stderr. Knows no verb."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TextIO

from disaggc.cli.options import Color

if TYPE_CHECKING:
    from disaggc.cli.progress import Bar
    from disaggc.diagnostics.render import Report


@dataclass(frozen=True, slots=True)
class Console:
    """Two streams and the user's wishes about them."""

    color: Color = Color.AUTO
    quiet: bool = False

    def result(self, text: str) -> None:
        """The result of the verb, on stdout, as given, with a newline at its end."""
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """Progress, on stderr; nothing under --quiet."""
        if not self.quiet:
            sys.stderr.write(text + "\n")

    def bar(self) -> Bar:
        """What shows that a verb still works; it begins now."""
        from disaggc.cli.progress import Bar

        return Bar.of(quiet=self.quiet)

    def fail(self, text: str) -> None:
        """Why there is no result, on stderr, where no field of a spec is to blame."""
        sys.stderr.write(f"error: {text}\n")

    def report(self, report: Report) -> None:
        """Findings, on stderr; under --quiet only errors."""
        from disaggc.diagnostics import Severity
        from disaggc.diagnostics.render.human import human

        shown = tuple(d for d in report.diagnostics if not self.quiet or d.severity is Severity.ERROR)
        sys.stderr.write(human(replace(report, diagnostics=shown), color=self.colored(sys.stderr)))

    def colored(self, stream: TextIO) -> bool:
        """Whether to colour this stream: asked for, or a terminal without NO_COLOR."""
        if self.color is Color.AUTO:
            return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return self.color is Color.ALWAYS
