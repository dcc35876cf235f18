from __future__ import annotations

import pytest

from tests.solve.spec_cases import FIVE, plan


@pytest.mark.parametrize(
    ("example", "overlay"),
    [(FIVE, "1k-1k.yaml"), (FIVE, "8k-1k.yaml"), ("starter", None), ("llama-70b-h100-k8s", None)],
)
def test_the_planned_load_goes_over_prefill(example: str, overlay: str | None) -> None:
    made, resolved = plan(example, overlay=overlay)
    (service,), (asked,) = made.services, resolved.services
    assert service.mode == "disaggregated"
    assert 0 < service.skip_prefill_below <= min(load.isl.p50 for load in asked.classes) / 2


def test_a_break_even_under_every_prompt_is_kept() -> None:
    made, _ = plan(FIVE)
    assert made.services[0].skip_prefill_below == 16
