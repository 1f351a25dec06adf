"""Which processes may still write the arena: records that outlive the block-manager, and proofs of death."""

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockyard.core.arena_writers import RankId, RankProcess
from blockyard.core.errors import ConfigurationError, UnavailableError, UnsupportedOperationError
from blockyard.core.vocabulary import EngineId
from blockyard.runtime.node_folder import replace_file
from blockyard_block_manager.writer_processes import WriterProcesses, observe

RANK = RankId(EngineId("engine/with strange name"), 1, 2)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


async def admitted_by(processes: WriterProcesses, pid: int) -> RankProcess:
    process = observe(RANK, pid)
    await processes.admit(process)
    return process


def files(folder: Path) -> list[str]:
    """Names of what lies in a folder."""
    return [path.name for path in folder.iterdir()]


def rewrite(folder: Path, *changes: tuple[str, str]) -> None:
    """Make the only record another one."""
    (record,) = folder.glob("*.json")
    text = record.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    record.write_text(text)


async def test_a_record_is_there_before_the_process_is_admitted_and_names_it_to_the_next_life(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    with WriterProcesses(tmp_path) as first:
        admitted = await admitted_by(first, process.pid)
        assert (admitted.rank, admitted.pid) == (RANK, process.pid)
        assert first.recorded() == [admitted]
    with WriterProcesses(tmp_path) as second:
        assert second.inherited() == second.recorded() == [admitted]


async def test_the_death_of_a_process_is_told_once_and_its_record_goes(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    died: asyncio.Queue[RankProcess] = asyncio.Queue()
    with WriterProcesses(tmp_path) as processes:
        processes.on_death = died.put_nowait
        admitted = await admitted_by(processes, process.pid)
        process.kill()
        assert await asyncio.wait_for(died.get(), 10.0) == admitted
        assert processes.recorded() == []
        assert died.empty()


async def test_a_process_that_dies_while_its_record_is_written_gets_no_arena_and_leaves_no_record(
    tmp_path: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()

    def write_after_its_death(path: Path, data: bytes) -> None:
        process.kill()
        assert told.wait(10.0)
        replace_file(path, data)

    monkeypatch.setattr("blockyard_block_manager.writer_processes.replace_file", write_after_its_death)
    with WriterProcesses(tmp_path) as processes:
        processes.on_death = lambda _: told.set()
        with pytest.raises(UnavailableError, match="gone"):
            await admitted_by(processes, process.pid)
        assert processes.recorded() == []


async def test_engines_whose_names_begin_alike_have_records_of_their_own(tmp_path: Path) -> None:
    with WriterProcesses(tmp_path) as processes:
        for name in ("x" * 100 + "1", "x" * 100 + "2"):
            await processes.admit(observe(RankId(EngineId(name), 0, 0), os.getpid()))
        assert len(processes.recorded()) == 2


async def test_a_process_that_died_between_two_lives_is_not_inherited(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    with WriterProcesses(tmp_path) as first:
        await admitted_by(first, process.pid)
    process.kill()
    process.wait()
    with WriterProcesses(tmp_path) as second:
        assert second.inherited() == []
        assert second.recorded() == []


async def test_another_process_with_the_same_number_is_not_taken_for_the_recorded_one(tmp_path: Path) -> None:
    with WriterProcesses(tmp_path) as first:
        await admitted_by(first, os.getpid())
    started = first.recorded()[0].started
    rewrite(tmp_path, (f'"started":{started}', f'"started":{started - 1}'))
    with WriterProcesses(tmp_path) as second:
        assert second.inherited() == []


async def test_a_process_of_another_space_of_numbers_is_inherited_whatever_its_number_says_here(tmp_path: Path) -> None:
    with WriterProcesses(tmp_path) as first:
        admitted = await admitted_by(first, os.getpid())
    space, pid = f'"namespace":{admitted.namespace}', f'"pid":{admitted.pid}'
    rewrite(tmp_path, (space, f'"namespace":{admitted.namespace + 1}'), (pid, '"pid":4194303'))
    with WriterProcesses(tmp_path) as second:
        assert [found.rank for found in second.inherited()] == [RANK]


async def test_a_process_of_an_earlier_start_of_the_machine_is_not_inherited(tmp_path: Path) -> None:
    with WriterProcesses(tmp_path) as first:
        admitted = await admitted_by(first, os.getpid())
    rewrite(tmp_path, (admitted.boot, "another-start-or-another-machine"))
    with WriterProcesses(tmp_path) as second:
        assert second.inherited() == second.recorded() == []


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 64])
async def test_whoever_a_record_that_cannot_be_read_is_about_may_write_until_there_is_another_arena(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "1-2-3.json").write_bytes(content)
    with WriterProcesses(tmp_path) as processes:
        (unknown,) = processes.inherited()
        assert "1-2-3.json" in unknown.rank.engine
        assert processes.recorded() == [unknown]
        processes.forget(processes.recorded())
        assert processes.recorded() == []
    assert files(tmp_path) == []


async def test_a_record_that_cannot_be_removed_does_not_keep_a_death_from_being_told(
    tmp_path: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "read-only")

    died: asyncio.Queue[RankProcess] = asyncio.Queue()
    with WriterProcesses(tmp_path) as processes:
        processes.on_death = died.put_nowait
        admitted = await admitted_by(processes, process.pid)
        monkeypatch.setattr(Path, "unlink", refuse)
        process.kill()
        assert await asyncio.wait_for(died.get(), 10.0) == admitted


async def test_a_record_that_cannot_be_written_keeps_the_process_from_the_arena(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    (tmp_path / "records").write_text("a file")
    with WriterProcesses(tmp_path / "records") as processes:
        with pytest.raises(ConfigurationError):
            await admitted_by(processes, process.pid)
        processes.forget([observe(RANK, process.pid)])


async def test_processes_that_cannot_be_seen_or_are_gone_get_no_arena(tmp_path: Path) -> None:
    with WriterProcesses(tmp_path) as processes:
        with pytest.raises(UnsupportedOperationError, match="visible"):
            await admitted_by(processes, 0)
        with pytest.raises(UnavailableError, match="gone"):
            await admitted_by(processes, 4_194_303)
        assert processes.recorded() == []
