"""A revision of weights that lie in a folder.

A revision chooses among the versions of a repository. A folder has one version, and vLLM does not look at the
revision: the spec would state something that nothing checks.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`model.revision` beside `model.weights`."""
    for service in resolved.services:
        model = service.given.model
        if model.revision is not None and model.weights is not None:
            yield Finding(
                "`revision` is not read for weights from a path; what lies there is loaded",
                at(service, "model", "revision"),
                help="remove it, or keep the revision in the path, e.g. `weights: /models/<name>/<revision>`",
            )


RULE = SpecRule(
    "DGC225",
    "revision-of-a-path",
    Severity.WARNING,
    check,
    sources=("vLLM: ModelConfig.revision, used for repositories only",),
    fails=(
        """
        services: {chat: {model: {revision: main}}}
        #                                   ^ DGC225
        """,
    ),
    passes=("services: {chat: {model: {weights: /models/llama/main}}}",),
)
