"""Independent checks of any plan against the spec and the facts; never imports solve."""
