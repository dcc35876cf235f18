"""The generations of routing files: kept where the file stays as it is, above all that came before where it changes.

A proxy takes a different file only with a higher number. A number that grew without a change would undo what
administration made of the file, e.g. another policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from disaggc.emit.artifacts import Artifact, ArtifactSet
from disaggc.emit.routing_file import FIRST

_NUMBER = re.compile(r'^(\s*"generation": )(\d{1,16})(,?)$', re.MULTILINE)
"""The table is JSON with one key a line, in a file of its own or in a block of YAML."""
_ANY_NUMBER = re.compile(r'"generation"\s*:\s*(\d{1,16})')
"""As other hands may have laid it out; within a text of the table the quotation marks would be escaped."""
_STAMPS = re.compile(r'^\s*disaggc\.dev/(?:compiler|plan|spec): ".*"\n', re.MULTILINE)
"""Marks of a ConfigMap: not of the table."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands where a routing file goes. administered: generation of the table of administration beside it."""

    text: str
    administered: int = 0


def numbered(
    artifacts: ArtifactSet, standing: Callable[[str], Standing | None], *, least: int = FIRST
) -> ArtifactSet:
    """The artifacts with the numbers their routing files need. standing: by path. least: of files that are not kept.

    The files of one service, e.g. on several hosts, have one number.
    """
    routing: dict[str, list[Artifact]] = {}
    for artifact in artifacts.artifacts:
        if _NUMBER.search(artifact.text) and artifact.address.endswith("/routing"):
            routing.setdefault(artifact.address, []).append(artifact)
    texts: dict[str, str] = {}
    for files in routing.values():
        number = _number([(one, standing(one.path)) for one in files], least)
        texts |= {one.path: _NUMBER.sub(rf"\g<1>{number}\g<3>", one.text, count=1) for one in files}
    return replace(
        artifacts,
        artifacts=tuple(replace(one, text=texts.get(one.path, one.text)) for one in artifacts.artifacts),
    )


def _number(files: list[tuple[Artifact, Standing | None]], least: int) -> int:
    before = [found for _, found in files if found is not None]
    numbers = {_generation(found.text) for found in before}
    same = len(numbers) == 1 and all(
        found is not None and _content(found.text) == _content(one.text) for one, found in files
    )
    if same:
        return numbers.pop()
    return max(least, FIRST, *(1 + max(_generation(found.text), found.administered) for found in before))


def _generation(text: str) -> int:
    return max(map(int, _ANY_NUMBER.findall(text)), default=0)


def _content(text: str) -> str:
    return _STAMPS.sub("", _NUMBER.sub(r"\g<1>\g<3>", text, count=1))
