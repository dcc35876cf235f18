"""The mark that says which plan a file came from, and the digest of a file without it.

A new plan marks every file anew; only the digest of the rest says whether anything has to restart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from disaggc.ir.canonical import digest, fingerprint
from disaggc.ir.plan import DeploymentPlan

_MARKS = re.compile(
    r'^(# Written by disaggc .*|\s*disaggc\.dev/(?:compiler|plan|spec): ".*"|\s*"(?:fingerprint|generation)": .*)\n',
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """compiler: version; plan: fingerprint; spec: digest of the resolved spec."""

    compiler: str
    plan: str
    spec: str

    @property
    def line(self) -> str:
        """One comment line for formats that have `#` comments."""
        return f"# Written by disaggc {self.compiler} from plan {self.plan}, spec {self.spec}. Do not edit."


def stamp_of(plan: DeploymentPlan) -> Stamp:
    """The plan's mark."""
    return Stamp(plan.provenance.disaggc, fingerprint(plan), plan.provenance.spec)


def content_digest(text: str) -> str:
    """Digest of a file without its marks. Placed texts cannot forge one: they never begin a line."""
    return digest(_MARKS.sub("", text))
