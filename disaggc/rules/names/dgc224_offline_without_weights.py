"""Engines told to stay offline and to fetch their model.

With `HF_HUB_OFFLINE=1` an engine loads a model by id only if it lies in its own cache already; a fresh node or
container fails at start.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import env
from disaggc.rules.rule import Finding, SpecRule

_NAMES = frozenset({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"})


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """An offline variable switched on for a model without `weights`."""
    for service in resolved.services:
        for given in env(service):
            on = given.text.lower() in ("1", "true", "yes", "on")
            if given.name in _NAMES and on and service.given.model.weights is None:
                yield Finding(
                    f"`{given.name}` keeps engines offline while `model.id` {service.model.id} is to be fetched",
                    given.path,
                    help="write `model.weights: <path on the nodes>`, or remove the variable",
                )


RULE = SpecRule(
    "DGC224",
    "offline-without-weights",
    Severity.WARNING,
    check,
    sources=("https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables",),
    fails=(
        """
        services:
          chat:
            model: {weights: null, revision: 0e9e39f249a16976918f6564b8830bc894c89659}
            engine: {env: {HF_HUB_OFFLINE: "1"}}
        #                                  ^ DGC224
        """,
    ),
    passes=('services: {chat: {engine: {env: {HF_HUB_OFFLINE: "1"}}}}',),
)
