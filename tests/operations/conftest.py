"""Leaves out what needs the tools for deployment where they are not installed, and says so."""

import importlib.util

_MISSING = [name for name in ("grafana_foundation_sdk", "matplotlib") if importlib.util.find_spec(name) is None]
collect_ignore = ["test_dashboards.py", "test_pictures.py", "test_queries.py", "test_real_run.py"] if _MISSING else []


def pytest_report_header() -> list[str]:
    """A line at the head of the run."""
    return [f"{', '.join(_MISSING)} not installed: dashboards are not tested (make deploy-tools)"] if _MISSING else []
