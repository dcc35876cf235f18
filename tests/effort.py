"""How hard a property test tries: its own number of examples in the suite, a multiple of it in `make soak`."""

from hypothesis import settings

USUAL = settings.get_profile("default").max_examples


def examples(count: int) -> int:
    """This many examples, scaled as the profile in effect scales hypothesis' usual number."""
    return count * settings.default.max_examples // USUAL
