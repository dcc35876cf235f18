"""Parts of the routing file as JSON text, and back."""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import ValidationError

from disaggc.ir.wording import faults
from disaggc.routing.limits import Part

P = TypeVar("P", bound=Part)


class TableError(ValueError):
    """The text is not a routing table; the message says where and why, one line per fault."""


def loaded(kind: type[P], text: str | bytes) -> P:
    """What the text holds; TableError when it is not of this kind."""
    try:
        return kind.model_validate(json.loads(text))
    except ValidationError as exc:
        raise TableError("\n".join(faults(exc, "table"))) from None
    except (ValueError, RecursionError) as exc:
        raise TableError(f"not JSON: {exc}") from None


def dumped(part: Part) -> str:
    """Canonical text: sorted keys, defaults written out, one trailing line break."""
    return json.dumps(part.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=True) + "\n"
