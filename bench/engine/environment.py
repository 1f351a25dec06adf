"""Where the engine's environment is, and whether there is one.

``ENGINE_PYTHON`` in the environment names another interpreter than the one that ``make engines`` makes.
Threading: pure functions over the file system.
"""

import os
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_DEFAULT: Final = ROOT / ".venv-engines" / "bin" / "python"
_PROBE: Final = """
import sys
from importlib.util import find_spec
sys.exit(not all(map(find_spec, ("vllm", "torch", "msgspec", "xxhash"))))
"""
_PROBE_SECONDS: Final = 60.0


def engine_python() -> Path:
    """The interpreter of the engine's environment; it may not be there."""
    return Path(os.environ.get("ENGINE_PYTHON") or _DEFAULT)


def obstacle() -> str:
    """Why no engine can run here; empty where one can."""
    python = engine_python()
    if not python.exists():
        return f"the engine's environment is missing ({python.name} of {python.parents[1].name}): make engines"
    done = subprocess.run([python, "-c", _PROBE], capture_output=True, check=False, timeout=_PROBE_SECONDS)
    return "" if done.returncode == 0 else "the engine's environment is incomplete: make engines"


def child_environment() -> dict[str, str]:
    """Variables for a program in the engine's environment: our library by its path, one thread, no network."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VLLM_"))}
    return inherited | {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "shared"), str(ROOT))),
        # More threads than one fight over two cores, and a decode step takes seconds.
        "OMP_NUM_THREADS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
