"""An image that is not pinned.

A tag can mean another build tomorrow. A prefill engine started then could not exchange KV with a decode engine
started today, and the handshake would refuse every request between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from disaggc.diagnostics import FieldPath, Severity
from disaggc.resolve.model import ResolvedService, ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule

_PINNED = re.compile(
    r"[a-z0-9][a-zA-Z0-9.\-]*(:\d{1,5})?(/[a-z0-9][a-z0-9._\-]*)*(:[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127})?@sha256:[0-9a-f]{64}"
)


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Every image of a service that is not a reference with a sha256 digest."""
    for service in resolved.services:
        for path, image in _images(service):
            if _PINNED.fullmatch(image):
                continue
            _, at_sign, digest = image.partition("@")
            tag = image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else "latest"
            why = (
                f"has the digest {digest[:24]!r}, which is not sha256: and 64 hexadecimal digits"
                if at_sign
                else f"has the tag {tag[:40]!r} and no digest; prefill and decode may run different builds"
            )
            yield Finding(
                f"`{path[-1]}` {why}",
                path,
                help="write `<registry>/<name>@sha256:<digest>`; `docker buildx imagetools inspect` shows it",
            )


def _images(service: ResolvedService) -> Iterator[tuple[FieldPath, str]]:
    engine, proxy = service.given.engine, service.given.proxy
    if engine.image is not None:
        yield at(service, "engine", "image"), engine.image
    for vendor, image in engine.images.items():
        yield at(service, "engine", "images", vendor), image
    if proxy.image is not None:
        yield at(service, "proxy", "image"), proxy.image


RULE = SpecRule(
    "DGC612",
    "image-without-digest",
    Severity.ERROR,
    check,
    sources=("OCI distribution: references by digest", "vLLM 0.33: nixl/metadata.py:146-216"),
    fails=(
        """
        services: {chat: {engine: {image: "vllm/vllm-openai:latest"}}}
        #                                 ^ DGC612
        """,
        """
        services: {chat: {proxy: {image: "example.org/disaggc@sha256:12"}}}
        #                                ^ DGC612
        """,
    ),
    passes=(
        """
        services:
          chat:
            engine:
              image: example.org/vllm:v0.33.0@sha256:1111111111111111111111111111111111111111111111111111111111111111
        """,
    ),
)
