"""Shared by every test: hypothesis profiles, the golden switch, and reference data that may be absent."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
"""The checkout."""

_SLOW_MACHINE = (HealthCheck.too_slow, HealthCheck.data_too_large)
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=_SLOW_MACHINE)
settings.register_profile("dev", deadline=None, suppress_health_check=_SLOW_MACHINE)
settings.register_profile("soak", deadline=None, max_examples=1_000, suppress_health_check=_SLOW_MACHINE)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regen-golden",
        action="store_true",
        help="write the golden trees under tests/golden from what the compiler emits now",
    )


@pytest.fixture(scope="session")
def regen_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--regen-golden"))


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Path of reference data that is not part of the project; the test is skipped, and says so, where it is absent."""
    root = Path(os.environ.get("DISAGGC_SHARED", ROOT.parent / "shared"))

    def find(relative: str) -> Path:
        path = root / relative
        if not path.exists():
            pytest.skip(
                f"needs {relative} of the reference data: set DISAGGC_SHARED to the folder that has it"
            )
        return path

    return find
