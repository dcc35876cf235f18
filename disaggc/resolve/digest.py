"""Digests of what a spec says, not of how it is written: no formatting, no order of keys, no path of this machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from disaggc.spec.model import Spec


def spec_digest(spec: Spec, contents: Iterable[str]) -> str:
    """`sha256:...` over the values that differ from their defaults and the digests of the files the spec names.

    Defaults are left out, so that a new field of a later disaggc changes no digest.
    """
    said = spec.model_dump(mode="json", exclude_defaults=True, warnings=False)
    text = json.dumps([said, sorted(contents)], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
