"""Independent checks of any plan against the spec and the facts; never imports solve."""

from disaggc.verify.api import verify

__all__ = ["verify"]
