"""Leaves out the tests of NIXL where its SDK is not installed, and says so."""

import importlib.util

_INSTALLED = importlib.util.find_spec("nixl_cu12") is not None
collect_ignore_glob = [] if _INSTALLED else ["*nixl*"]


def pytest_report_header() -> list[str]:
    """A line at the head of the run."""
    return [] if _INSTALLED else ["nixl_cu12 is not installed: its tests are left out"]
