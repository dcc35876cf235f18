"""Weights fetched by name without a revision.

Each engine would resolve the newest revision when it starts. A prefill and a decode engine started on two days may
then hold different weights; the connector's handshake compares the model's name, not its content.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """A model with neither `weights` nor `revision`."""
    for service in resolved.services:
        model = service.given.model
        if model.weights is None and model.revision is None:
            yield Finding(
                f"`model.id` {model.id} is fetched without a revision; prefill and decode may hold different weights",
                at(service, "model", "id"),
                help="write `model.revision: <commit>` or `model.weights: <path>`",
            )


RULE = SpecRule(
    "DGC223",
    "unpinned-revision",
    Severity.WARNING,
    check,
    sources=("vLLM 0.33: nixl/metadata.py:146-216 hashes the literal model name only",),
    fails=(
        """
        services: {chat: {model: {id: meta-llama/Llama-3.1-8B, weights: null}}}
        #                             ^ DGC223
        """,
    ),
    passes=(
        "services: {chat: {model: {weights: null, revision: 0e9e39f249a16976918f6564b8830bc894c89659}}}",
    ),
)
