"""The offload-worker in a real control group with a memory limit, as in a container; needs the right to make one."""

import asyncio
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from pydantic import ByteSize
from tests.integration.engine_kit import BM, OW, local_settings, node_folder

from blockyard.cli.child_process import ChildProcess, ChildSpec
from blockyard.runtime.node_folder import NodeFolder
from blockyard.runtime.settings import G2Section, G3Section, NodeSettings
from blockyard.runtime.settings_source import environment_of
from blockyard.testing.running_node import eventually, running_node

__all__ = ["node_folder"]
LIMIT_BYTES = 512 << 20
_LIMIT_FILES = ("memory.max", "memory.limit_in_bytes")
_USAGE_FILES = ("memory.current", "memory.usage_in_bytes")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of its own with a memory limit."""
    for top in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")):
        folder = top / f"blockyard-test-{uuid4().hex[:8]}"
        try:
            folder.mkdir()
        except OSError:
            continue
        found = [name for name in _LIMIT_FILES if (folder / name).exists()]
        if found:
            (folder / found[0]).write_text(str(LIMIT_BYTES))
            yield folder
            folder.rmdir()
            return
        with suppress(OSError):
            folder.rmdir()
    pytest.skip("no control group with a memory limit can be made here")


def worker_in(group: Path, settings: NodeSettings) -> ChildProcess:
    folder = NodeFolder.of(settings).path
    folder.mkdir(parents=True, exist_ok=True)
    program = Path(sysconfig.get_path("scripts")) / "blockyard-offload-worker"
    command = ("/bin/sh", "-c", 'echo $$ > "$0" && exec "$1"', str(group / "cgroup.procs"), str(program))
    return ChildProcess(ChildSpec("offload-worker", command, folder / "worker.log", environment_of(settings)))


def sized(folder: Path, arena_bytes: int) -> NodeSettings:
    tiers = {"g2": G2Section(capacity=ByteSize(arena_bytes)), "g3": G3Section(enabled=False)}
    return local_settings(folder).model_copy(update=tiers)


async def used(group: Path) -> int:
    return next(int((group / name).read_text()) for name in _USAGE_FILES if (group / name).exists())


async def test_an_arena_that_the_kernel_would_not_let_fill_is_refused_at_the_start(
    group: Path, node_folder: Path
) -> None:
    worker = worker_in(group, sized(node_folder, LIMIT_BYTES))
    try:
        assert await worker.wait_async(20.0)
    finally:
        worker.kill()
    assert worker.exit_code == 2
    assert "need 785 MiB, and the memory limit here is 512 MiB" in worker.log_tail()
    assert "key=g2.capacity" in worker.log_tail()


async def test_the_memory_of_the_arena_counts_against_the_worker_whoever_writes_it(
    group: Path, node_folder: Path
) -> None:
    arena_bytes = 192 << 20
    settings = sized(node_folder, arena_bytes)
    worker = worker_in(group, settings)
    try:
        async with running_node(settings, BM) as node:
            await node.ready("nats", "node-lease")

            async def taken() -> bool:
                return await used(group) >= arena_bytes

            await eventually(taken, "the memory of the arena is taken")
            async with httpx.AsyncClient() as client:
                page = (await client.get(f"{node.folder.service(OW).read_http()}/metrics")).text
            shown = [line for line in page.splitlines() if line.startswith("blockyard_memory_limit_bytes ")]
            assert [float(line.split()[1]) for line in shown] == [LIMIT_BYTES]
    finally:
        worker.kill()
        # The kernel forgets the process a moment after its parent has.
        async with asyncio.timeout(10.0):
            while (group / "cgroup.procs").read_text():
                await asyncio.sleep(0.02)
