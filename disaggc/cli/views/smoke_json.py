"""`disaggc.smoke/v1`: what `disaggc smoke --format json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from disaggc.cli.views.document import Document, Item

if TYPE_CHECKING:
    from disaggc.ir.plan import DeploymentPlan
    from disaggc.rollout.smoke_model import Finding


class SmokeFindingItem(Item):
    """One check of one subject."""

    check: str
    """Name: reachable, kv-blocks, kv-moves, bandwidth, parity, cancel, remote-prefill, hang-up, kv-losses."""
    subject: str
    """Plan address, or a pair of them."""
    state: Literal["pass", "fail", "skip"]
    """skip: could not be judged, the sentence says why."""
    sentence: str
    """What was seen."""
    figures: dict[str, float]
    """The numbers in it."""


class SmokeDocument(Document):
    """Output of `disaggc smoke --format json`."""

    schema_: Annotated[Literal["disaggc.smoke/v1"], Field(alias="schema")] = "disaggc.smoke/v1"
    """Name and version of this format."""
    fingerprint: str
    """Of the plan that was compared with."""
    passed: bool
    """Whether no check failed."""
    findings: tuple[SmokeFindingItem, ...]
    """In the order they were made."""


def smoke_document(plan: DeploymentPlan, found: Sequence[Finding]) -> SmokeDocument:
    """What was found."""
    from disaggc.ir.canonical import fingerprint

    return SmokeDocument(
        fingerprint=fingerprint(plan),
        passed=all(one.state != "fail" for one in found),
        findings=tuple(
            SmokeFindingItem(
                check=one.check,
                subject=one.subject,
                state=one.state,
                sentence=one.sentence,
                figures=dict(one.figures),
            )
            for one in found
        ),
    )
