"""What an engine gets of Blockyard: three small packages, and of its modules only those that run inside an engine."""

import json
import subprocess
from typing import Final

import pytest
from tests.engines.engine_process import PYTHON, QUIET

# To import the engine takes a slow machine a minute.
pytestmark = pytest.mark.timeout(300)

_OURS: Final = ("blockyard.core", "blockyard.wire", "blockyard.connectors")
_MORE: Final = {"blockyard", "blockyard.runtime", "blockyard.runtime.backoff"}
_PARTS: Final = ("blockyard.runtime.rpc", "blockyard.tiers")
_PROBE: Final = """
import importlib.abc, json, sys

asked = set()

class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        frame = sys._getframe(1)
        while frame and frame.f_globals.get("__name__", "").startswith("importlib"):
            frame = frame.f_back
        if frame and frame.f_globals.get("__name__", "").startswith("blockyard"):
            asked.add(name.partition(".")[0])
        return None

sys.meta_path.insert(0, Watch())
import blockyard.connectors.vllm.connector
modules = sorted(name for name in sys.modules if name.partition(".")[0].startswith("blockyard"))
print(json.dumps({"modules": modules, "asked": sorted(asked - sys.stdlib_module_names)}))
"""


def run(code: str) -> str:
    done = subprocess.run(
        (str(PYTHON), "-c", code), capture_output=True, text=True, check=False, timeout=240, env=QUIET
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_the_connector_brings_no_more_than_what_runs_in_an_engine() -> None:
    found = json.loads(run(_PROBE))
    strange = [name for name in found["modules"] if name not in _MORE and not name.startswith((*_OURS, *_PARTS))]
    assert strange == []
    assert set(found["asked"]) <= {"blockyard", "msgspec", "numpy", "xxhash", "vllm", "torch", "prometheus_client"}


def test_the_package_asks_for_three_others() -> None:
    code = """
import json
from importlib.metadata import requires
from packaging.requirements import Requirement
needs = [Requirement(text) for text in requires("blockyard")]
print(json.dumps(sorted(need.name for need in needs if not (need.marker and "extra" in str(need.marker)))))
"""
    assert json.loads(run(code)) == ["msgspec", "numpy", "xxhash"]


def test_the_environment_has_none_of_what_services_need() -> None:
    """Of what they share with the engine by chance, nothing can be said; these only services use."""
    names = ("nats", "redis", "aioboto3", "obstore", "structlog", "nixl_cu12")
    code = f"import importlib.util as u; print([n for n in {names} if u.find_spec(n)])"
    assert run(code) == "[]"
