"""A secret written into the spec.

The spec lies in a repository, and its values end up in units, manifests and process lists. A secret goes by name
only; the target fetches its value from its own store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import env
from disaggc.rules.rule import Finding, SpecRule

_SECRET = re.compile(r"(^|_)(TOKEN|KEY|PASSWORD|PASSWD|SECRET|CREDENTIALS?)$")
_NOT_SECRET = frozenset({"CACHE_KEY", "PUBLIC_KEY"})
_LIKE_A_TOKEN = re.compile(r"^(hf_\w{20,}|sk-[\w\-]{20,}|gh[pousr]_\w{20,}|AKIA[A-Z0-9]{16})$")


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Literal values of variables whose name or form is that of a secret; paths and empty values are none."""
    for service in resolved.services:
        for given in env(service):
            named = _SECRET.search(given.name) is not None and given.name not in _NOT_SECRET
            literal = given.text
            if not literal or literal.startswith("/") or not (named or _LIKE_A_TOKEN.match(literal)):
                continue
            slug = given.name.lower().replace("_", "-")
            yield Finding(
                f"`{given.name}` holds a secret in clear; it would stand in the repository and in every generated file",
                given.path,
                help=f"write `{given.name}: {{secret: {slug}}}` and put the value into the target's secret store",
            )


RULE = SpecRule(
    "DGC219",
    "secret-in-clear",
    Severity.ERROR,
    check,
    sources=("https://cwe.mitre.org/data/definitions/798.html",),
    fails=(
        """
        services: {chat: {engine: {env: {HF_TOKEN: not-a-real-token}}}}
        #                                          ^ DGC219
        """,
    ),
    passes=("services: {chat: {engine: {env: {HF_TOKEN: {secret: hf-token}, SSL_KEY: /etc/key.pem}}}}",),
)
