"""Leaves out the tests of NIXL where its SDK is not installed, and says so; time decides no property test.

A test that takes a portion of seeds is marked as a simulation: ``make soak`` runs these with many more seeds.
"""

import importlib.util

import pytest
from hypothesis import settings

from blockyard.testing.seeds import SeedBatch

settings.register_profile("without a deadline", deadline=None)
settings.load_profile("without a deadline")

_INSTALLED = importlib.util.find_spec("nixl_cu12") is not None
collect_ignore_glob = [] if _INSTALLED else ["*nixl*"]


def pytest_report_header() -> list[str]:
    """A line at the head of the run."""
    return [] if _INSTALLED else ["nixl_cu12 is not installed: its tests are left out"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the simulations."""
    for item in items:
        call = getattr(item, "callspec", None)
        if call is not None and any(isinstance(value, SeedBatch) for value in call.params.values()):
            item.add_marker(pytest.mark.simulation)
