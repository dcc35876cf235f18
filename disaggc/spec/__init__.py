"""Stage 1: YAML text to a typed, frozen Spec with a source position for every value."""
