"""The commit thread: starts cycles by itself, ends in order, and never leaves a waiter behind."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from blockyard.core.errors import TransferError
from blockyard.core.vocabulary import BlockId, ItemStatus
from blockyard.testing.slab_files import FileCall, RecordingSlabFile
from blockyard.testing.slab_kit import file_bytes, format_in_memory
from blockyard.tiers.g3_slab.committer import CommitPolicy, Committer, PageRequest
from blockyard.tiers.g3_slab.header_pages import HeaderPages
from blockyard.tiers.g3_slab.layout import SlabGeometry
from blockyard.tiers.header import HeaderState, with_state

SLOTS = 8
RECORD = with_state(bytes(256), 1, HeaderState.FREE)
FOR_EVER = CommitPolicy(interval_seconds=1e6)


@pytest.fixture
def file() -> RecordingSlabFile:
    file = RecordingSlabFile(file_bytes(SLOTS))
    format_in_memory(file, SLOTS)
    return file


def committer_of(file: RecordingSlabFile, policy: CommitPolicy) -> Committer:
    pages = HeaderPages(file, SlabGeometry.for_payload(SLOTS, 4096), bytes(16))
    committer = Committer(file, pages, policy)
    committer.start()
    return committer


@pytest.fixture
def committer(file: RecordingSlabFile) -> Iterator[Committer]:
    committer = committer_of(file, CommitPolicy(interval_seconds=0.0))
    yield committer
    committer.stop()


def request(slot: int, payload_bytes: int = 0) -> PageRequest:
    return PageRequest(BlockId(slot), RECORD, payload_bytes)


async def test_changes_are_committed_without_being_asked(committer: Committer) -> None:
    stored = committer.payloads_written([request(1, 4096), request(2, 4096)])
    freed = committer.retired([request(5)])
    assert await asyncio.wrap_future(stored.done) == [ItemStatus.OK] * 2
    assert await asyncio.wrap_future(freed.done) == [ItemStatus.OK]


def test_enough_bytes_start_a_cycle_before_the_interval(file: RecordingSlabFile) -> None:
    committer = committer_of(file, CommitPolicy(interval_seconds=1e6, max_bytes=8192))
    begun = threading.Event()
    file.during_sync = begun.set
    committer.payloads_written([request(1, 4096)])
    assert not begun.is_set()
    committer.payloads_written([request(2, 4096)])
    assert begun.wait(timeout=10)
    committer.stop()


def test_stopping_commits_what_waits(file: RecordingSlabFile) -> None:
    committer = committer_of(file, FOR_EVER)
    stored = committer.payloads_written([request(1, 4096)])
    committer.stop()
    committer.stop()
    assert stored.done.result(timeout=0) == [ItemStatus.OK]


def test_a_stopped_committer_refuses(file: RecordingSlabFile) -> None:
    committer = committer_of(file, FOR_EVER)
    committer.stop()
    assert committer.retired([request(1)]).done.result(timeout=0) == [ItemStatus.IO_ERROR]


def test_no_requests_are_done_at_once(file: RecordingSlabFile) -> None:
    committer = committer_of(file, FOR_EVER)
    assert committer.retired([]).done.result(timeout=0) == []
    committer.stop()


def test_a_failed_sync_answers_all_who_wait_and_all_who_come(file: RecordingSlabFile, committer: Committer) -> None:
    file.fail(FileCall.SYNC, TransferError("device lost"))
    assert committer.payloads_written([request(1, 4096)]).done.result(timeout=10) == [ItemStatus.IO_ERROR]
    file.heal()
    assert committer.retired([request(2)]).done.result(timeout=10) == [ItemStatus.IO_ERROR]
    assert "device lost" in committer.failure


def test_a_crash_of_the_thread_answers_all_who_wait(
    file: RecordingSlabFile, committer: Committer, caplog: pytest.LogCaptureFixture
) -> None:
    def crash() -> None:
        raise ZeroDivisionError("a bug")

    file.during_sync = crash
    assert committer.payloads_written([request(1, 4096)]).done.result(timeout=10) == [ItemStatus.IO_ERROR]
    assert "a bug" in committer.failure
    assert "the commit thread failed" in caplog.text


async def test_a_waiter_that_leaves_does_not_stop_the_commit(committer: Committer, file: RecordingSlabFile) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def during_sync() -> None:
        begun.set()
        go_on.wait(timeout=10)

    file.during_sync = during_sync
    batch = committer.retired([request(1)])
    waiter = asyncio.ensure_future(asyncio.wrap_future(batch.done))
    await asyncio.to_thread(begun.wait, 10)
    waiter.cancel()
    go_on.set()
    assert await asyncio.to_thread(batch.done.result, 10) == [ItemStatus.OK]
