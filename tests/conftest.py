"""Leaves out the tests of NIXL where its SDK is not installed, and says so; time decides no property test."""

import importlib.util

from hypothesis import settings

settings.register_profile("without a deadline", deadline=None)
settings.load_profile("without a deadline")

_INSTALLED = importlib.util.find_spec("nixl_cu12") is not None
collect_ignore_glob = [] if _INSTALLED else ["*nixl*"]


def pytest_report_header() -> list[str]:
    """A line at the head of the run."""
    return [] if _INSTALLED else ["nixl_cu12 is not installed: its tests are left out"]
