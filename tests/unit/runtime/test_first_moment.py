"""Console scripts that are told to end while they are still loading, and what is left of that when they run."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blockyard.runtime.first_moment import STOPPING
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.supervisor import ServiceContext, run_service

SERVICES = ("blockyard_block_manager.main", "blockyard_offload_worker.main", "blockyard_remote_tier.main")
PROGRAMS = (*SERVICES, "blockyard.connectors.mock.__main__", "blockyard.cli.main")
WHEN_LOADED = """
import importlib, os, sys

class SignalAt:
    def find_spec(self, name, path=None, target=None):
        if name == {moment!r}:
            os.kill(os.getpid(), {number})

main = importlib.import_module({program!r}).main
sys.meta_path.insert(0, SignalAt())
sys.argv[1:] = ["--help"]
sys.exit(main())
"""

WITHOUT = """
import importlib, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

main = importlib.import_module({program!r}).main
sys.meta_path.insert(0, Absent())
sys.argv[1:] = ["--help"]
sys.exit(main())
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("program", PROGRAMS)
def test_next_to_nothing_is_loaded_before_signals_have_a_meaning(program: str) -> None:
    heavy = "{'asyncio', 'argparse', 'typer', 'msgspec', 'numpy', 'pydantic', 'structlog', 'prometheus_client'}"
    done = run(f"import sys, {program}\nsys.exit(','.join({heavy} & set(sys.modules)) or 0)")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_signal_ends_a_program_that_has_begun_to_load(program: str, number: signal.Signals) -> None:
    """The default action would end it too, but not the first process of a container: it has to be handled."""
    done = run(WHEN_LOADED.format(moment="asyncio", number=int(number), program=program))
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


@pytest.mark.parametrize("moment", ["msgspec", "numpy", "prometheus_client", "uvicorn"])
def test_no_moment_of_loading_turns_a_signal_into_a_failure(moment: str) -> None:
    done = run(WHEN_LOADED.format(moment=moment, number=int(signal.SIGTERM), program=SERVICES[0]))
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "", "")


@pytest.mark.parametrize(
    ("program", "package", "code", "told"),
    [
        (SERVICES[0], "fastapi", 2, "blockyard-block-manager: the package fastapi is not installed: install "),
        (SERVICES[1], "structlog", 2, "blockyard-offload-worker: the package structlog is not installed: install "),
        (SERVICES[2], "obstore", 2, "blockyard-remote-tier: the package obstore is not installed: install "),
        ("blockyard.connectors.mock.__main__", "msgspec", 2, "blockyard-demo-engine: the package msgspec is not "),
        ("blockyard.cli.main", "typer", 3, "blockyard: the package typer is not installed: install blockyard["),
    ],
)
def test_a_package_that_is_not_installed_is_named_in_a_sentence(
    program: str, package: str, code: int, told: str
) -> None:
    done = run(WITHOUT.format(package=package, program=program))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert done.stderr.startswith(told)


def test_a_module_of_ours_that_is_missing_is_a_defect_and_has_a_trace() -> None:
    done = run(WITHOUT.format(package="blockyard.runtime.supervisor", program=SERVICES[0]))
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.usefixtures("restored_logging")
def test_handlers_of_before_are_back_after_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the end would else be as deaf as the beginning, in the first process of a container."""
    monkeypatch.setenv("BLOCKYARD_NODE__FOLDER", str(tmp_path))
    before = {number: signal.getsignal(number) for number in STOPPING}

    async def main(_: ServiceContext) -> None:
        assert signal.SIG_IGN not in [signal.getsignal(number) for number in STOPPING]

    try:
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        assert run_service(main, ServiceName.REMOTE_TIER, "A service for tests.", ()) == 0
        assert [signal.getsignal(number) for number in STOPPING] == [signal.SIG_IGN] * len(STOPPING)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
