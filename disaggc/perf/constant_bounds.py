"""Between which values each constant of the model makes sense: what a calibration file may state.

Far wider than anything measured; beyond them a number is in another unit, or the model's arithmetic ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from disaggc.perf.constants import NAMES, Range

_SHARE = (1e-3, 2.0)
"""Of a peak: more than all of it only where the catalog's peak is too low."""
_SECONDS = (0.0, 10.0)
"""Fixed costs of a step, a prompt or a transfer."""
_EACH = (0.0, 0.1)
"""Of one sequence, token or kernel."""
_SQUARE = (0.0, 1e-3)
_SPEED = (1e3, 1e15)
"""Bytes per second."""
_FACTOR = (1e-2, 1e3)

BOUNDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        **{name: _SHARE for name in NAMES if name.endswith("_eff")},
        **dict.fromkeys(
            ("step_s", "prefill_s", "mixed_s", "join_s", "kv_setup_s", "hop_s"), _SECONDS
        ),
        "decode_fixed_s": (1e-6, _SECONDS[1]),
        **dict.fromkeys(
            (
                "kernel_s", "sequence_s", "collective_s", "all2all_s", "prefill_kernel_s", "join_token_s",
                "decode_per_sequence_s", "prefill_per_token_s",
            ),
            _EACH,
        ),
        "decode_per_token_s": _SQUARE,
        "prefill_per_square_s": _SQUARE,
        **dict.fromkeys(("host_bytes_per_s", "kv_bytes_per_s"), _SPEED),
        **dict.fromkeys(("kappa", "step_miss", "prompt_miss"), _FACTOR),
        "imbalance": (1.0, 1e3),
        "batch_slope": (-1.0, 1.0),
        "burst": (0.0, 100.0),
    }
)  # fmt: skip
"""Least and most of every constant, in its unit."""
TOGETHER = (
    ("decode_fixed_s", "decode_per_sequence_s", "decode_per_token_s"),
    ("prefill_per_token_s", "prefill_per_square_s"),
)
"""Direct fits: one without the others says nothing."""
_WIDEST = 1e4
"""High over low of a range that still says something."""


def out_of_bounds(name: str, given: Range) -> str | None:
    """What is wrong with a constant's range; None where it makes sense."""
    least, most = BOUNDS[name]
    for value in (given.low, given.mid, given.high):
        if not least <= value <= most:  # NaN too
            return f"`{name}` is {value:.4g}, at least {least:g} and at most {most:g} makes sense"
    if not given.low <= given.mid <= given.high:
        return f"`{name}` is not ordered low, mid, high: {given.low:.4g}, {given.mid:.4g}, {given.high:.4g}"
    if given.low > 0 and given.high / given.low > _WIDEST:
        return f"`{name}` is known to a factor of {given.high / given.low:.3g}: leave it out, the priors know more"
    return None


def incomplete(given: Mapping[str, Range]) -> str | None:
    """What a set of constants lacks to say how long a step takes; None where nothing."""
    for names in TOGETHER:
        missing = [name for name in names if name not in given]
        if 0 < len(missing) < len(names):
            stated = next(name for name in names if name in given)
            return f"`{stated}` stands without `{missing[0]}`: {' and '.join(names)} are one fit"
        if not missing and all(given[name].low <= 0 for name in names):
            return f"{' and '.join(names)} are zero together at their low ends: prompts would take no time"
    return None
