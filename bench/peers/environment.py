"""Where the peers' environment is, and which of them it has.

``PEERS_PYTHON`` in the environment names another interpreter than that of the environment ``make bench-peers`` makes.
Where a peer could not be installed, that leaves the reason in the folder ``missing``, in a file of the package's name.
Threading: pure functions over the file system.
"""

import os
import subprocess
from pathlib import Path
from typing import Final

from bench.child import ROOT

_DEFAULT: Final = ROOT / ".venv-peers" / "bin" / "python"
_PROBE: Final = """
import sys
from importlib import metadata
try:
    sys.stdout.write(metadata.version(sys.argv[1]))
except metadata.PackageNotFoundError:
    sys.exit(1)
"""
_PROBE_SECONDS: Final = 60.0


def peers_python() -> Path:
    """The interpreter of the peers' environment; it may not be there."""
    return Path(os.environ.get("PEERS_PYTHON") or _DEFAULT)


def version_of(package: str) -> str:
    """Version of a peer that is installed; empty where it is not."""
    if not peers_python().exists():
        return ""
    command = [str(peers_python()), "-c", _PROBE, package]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_PROBE_SECONDS, env=child_environment()
    )
    return done.stdout if done.returncode == 0 else ""


def obstacle(package: str) -> str:
    """Why this peer is not there, and what helps."""
    if not peers_python().exists():
        return "the peers' environment is missing: make bench-peers"
    reason = peers_python().parents[1] / "missing" / package
    if reason.exists():
        return f"{package} could not be installed: {' '.join(reason.read_text().split())}"
    return f"{package} is not in the peers' environment: make bench-peers"


def child_environment() -> dict[str, str]:
    """Variables for a program in the peers' environment: ours not among its packages, one thread, no network."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VLLM_"))}
    return inherited | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
