"""A service as the first process of a container, told to stop while it starts.

Such a process gets no signal that it does not handle: one that came too early would have no effect, and whoever stops
the container would wait until it is killed. What comes before the first of these moments is the interpreter itself.
"""

import os
import signal
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.engine_kit import ALL, local_settings, node_folder
from tests.integration.process_namespace import wrapper

from blockyard.cli.child_process import ChildProcess, ChildSpec
from blockyard.runtime.node_folder import NodeFolder, ServiceName
from blockyard.runtime.settings_source import environment_of
from blockyard.testing.running_node import eventually

__all__ = ["node_folder", "wrapper"]

STOP_SECONDS = 8.0
"""Less than an engine waits before it kills."""
STOPPED = 0
ENDED_WHILE_LOADING = 128 + signal.SIGTERM


def first_process(launcher: int) -> int | None:
    """Process that ``launcher`` has put into a namespace of its own."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return int(children[0]) if children else None


def handles_signals(process: int, _: NodeFolder) -> bool:
    status = Path(f"/proc/{process}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) & 1 << (signal.SIGTERM - 1))


def loads_libraries(process: int, _: NodeFolder) -> bool:
    return "numpy" in Path(f"/proc/{process}/maps").read_text()


def has_begun(_: int, node: NodeFolder) -> bool:
    return any(node.service(service).lock.exists() for service in ServiceName)


@pytest.mark.parametrize("moment", [handles_signals, loads_libraries, has_begun])
@pytest.mark.parametrize("service", ALL)
async def test_a_stop_that_comes_early_is_not_waited_out(
    wrapper: tuple[str, ...], node_folder: Path, service: ServiceName, moment: Callable[[int, NodeFolder], bool]
) -> None:
    settings = local_settings(node_folder)
    command = (*wrapper, str(Path(sysconfig.get_path("scripts")) / f"blockyard-{service}"))
    spec = ChildSpec(str(service), command, node_folder / f"{service}.log", environment_of(settings))
    with ChildProcess(spec) as child:

        async def reached() -> bool:
            process = first_process(child.pid)
            return process is not None and moment(process, NodeFolder.of(settings))

        await eventually(reached, moment.__name__)
        process = first_process(child.pid)
        assert process is not None
        os.kill(process, signal.SIGTERM)
        ended = await child.wait_async(STOP_SECONDS)
        if not ended:
            child.kill()
        assert ended, "it goes on as if nothing had been said"
        assert child.exit_code in (STOPPED, ENDED_WHILE_LOADING), child.log_tail()
