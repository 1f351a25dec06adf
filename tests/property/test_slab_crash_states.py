"""After a crash at any moment, with any subset of the unsynced pages on disk, a valid header has its payload.

The payloads have two pages, so that a crash may also leave half of one.
"""

import asyncio
import threading
from collections.abc import Sequence
from enum import Enum

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blockyard.core.vocabulary import ItemStatus
from blockyard.testing.slab_files import MemorySlabFile, RecordingSlabFile
from blockyard.testing.slab_kit import (
    HeldMover,
    InlineMover,
    SteppedSlab,
    after_restart,
    block_for,
    broken_promises,
    file_bytes,
    format_in_memory,
    let_tasks_run,
    open_stepped,
)
from blockyard.tiers.arena import PAGE_BYTES, Arena
from blockyard.tiers.base import SlotArray
from blockyard.tiers.g3_slab.layout import SlabGeometry
from blockyard.tiers.header import pack_header

SLOTS = 3
PAYLOAD = 2 * PAGE_BYTES
STATES = 256


class Do(Enum):
    """What a scenario does next."""

    STORE = "store"
    """Start a store into a slot; its payload is written at a later RELEASE."""
    RELEASE = "release"
    FREE = "free"
    CYCLE = "cycle"
    CYCLE_AND_RELEASE = "cycle and release"
    """A cycle during whose sync a payload write finishes."""


Action = tuple[Do, int]
ACTIONS = st.lists(st.tuples(st.sampled_from(Do), st.integers(0, SLOTS - 1)), max_size=30)


class Scenario:
    """Carries out actions on a recording slab and looks at every crash state on the way."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._mover = HeldMover(arena)
        self._file = RecordingSlabFile(file_bytes(SLOTS, PAYLOAD))
        format_in_memory(self._file, SLOTS, PAYLOAD)
        self._stepped: SteppedSlab = open_stepped(self._file)
        self._generations = [0] * SLOTS
        self._stored: list[tuple[int, int, asyncio.Task[list[ItemStatus]]]] = []
        self._changes: list[asyncio.Task[list[ItemStatus]]] = []
        self._seed = 0
        self._file.before_durable = self.look

    def look(self) -> None:
        """Every state that a crash right now could leave keeps the promise, and durable blocks are in all of them."""
        durable = [(slot, generation) for slot, generation, store in self._stored if self._is_durable(store)]
        current = [pair for pair in durable if self._stepped.slab.is_current(*pair)]
        for left in self._file.crash_states(STATES):
            assert broken_promises(left) == []
            found = after_restart(left).pages
            assert all(found.read(slot).verdict.is_block for slot, _ in current)

    @staticmethod
    def _is_durable(store: "asyncio.Task[list[ItemStatus]]") -> bool:
        return store.done() and store.result() == [ItemStatus.OK]

    async def run(self, actions: Sequence[Action]) -> None:
        for do, slot in actions:
            await self.act(do, slot)
            await let_tasks_run()
        self.look()
        await self.end()

    async def act(self, do: Do, slot: int) -> None:
        if do is Do.STORE and len(self._stored) < self._arena.slots:
            self._generations[slot] += 1
            self._seed += 1
            index, generation = len(self._stored), self._generations[slot]
            item = block_for(self._stepped.slab, self._arena, self._seed, index, slot, generation)
            store = asyncio.ensure_future(self._stepped.slab.store(self._mover, [item]))
            self._stored.append((slot, generation, store))
        elif do is Do.RELEASE:
            self._mover.release()
        elif do is Do.FREE:
            change = self._stepped.slab.free([slot], [self._generations[slot]])
            self._changes.append(asyncio.ensure_future(change))
        elif do is Do.CYCLE:
            self._stepped.committer.step()
        elif do is Do.CYCLE_AND_RELEASE:
            await self._cycle_and_release()

    async def _cycle_and_release(self) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def during_sync() -> None:
            begun.set()
            go_on.wait(timeout=10)

        self._file.during_sync = during_sync
        cycle = asyncio.create_task(asyncio.to_thread(self._stepped.committer.step))
        while not (begun.is_set() or cycle.done()):
            await asyncio.sleep(0)
        self._mover.release()
        await let_tasks_run()
        go_on.set()
        await cycle
        self._file.during_sync = lambda: None

    async def end(self) -> None:
        """Let everything finish, then look again."""
        waiting = [store for _, _, store in self._stored] + self._changes
        while not all(change.done() for change in waiting):
            self._mover.release()
            await let_tasks_run()
            self._stepped.committer.step()
            await let_tasks_run()
        self.look()
        await self._stepped.slab.close()
        assert broken_promises(self._file) == []


S, R, F, C, M = Do.STORE, Do.RELEASE, Do.FREE, Do.CYCLE, Do.CYCLE_AND_RELEASE


@settings(max_examples=25)
@given(ACTIONS)
@example([(S, 0), (R, 0), (C, 0), (C, 0), (F, 0), (C, 0), (S, 0), (R, 0), (C, 0), (C, 0)])
@example([(S, 0), (R, 0), (C, 0), (C, 0), (S, 0), (C, 0), (R, 0), (C, 0), (C, 0)])
@example([(S, 0), (S, 1), (S, 2), (R, 0), (M, 0), (M, 0), (C, 0), (C, 0)])
@example([(S, 0), (R, 0), (C, 0), (C, 0), (F, 0), (S, 1), (R, 1), (C, 0), (S, 0), (M, 0), (M, 0), (C, 0), (C, 0)])
def test_no_crash_leaves_a_header_without_its_payload(actions: list[Action]) -> None:
    with Arena.create(40, PAYLOAD) as arena:
        asyncio.run(Scenario(arena).run(actions))


async def test_a_header_written_before_its_payload_is_durable_is_noticed() -> None:
    """The check has teeth: the forbidden order does leave broken promises."""
    with Arena.create(1, PAYLOAD) as arena:
        file = RecordingSlabFile(file_bytes(SLOTS, PAYLOAD))
        format_in_memory(file, SLOTS, PAYLOAD)
        stepped = open_stepped(file)
        item = block_for(stepped.slab, arena, 1, 0, 1, 1)
        await InlineMover(arena).write(stepped.slab.region, _one(0), _one(1))
        _write_page(file, 1, pack_header(item.header))
        assert any(broken_promises(left) for left in file.crash_states(STATES))
        file.sync()
        assert not any(broken_promises(left) for left in file.crash_states(STATES))
        await stepped.slab.close()


async def test_a_payload_written_over_a_ready_slot_is_noticed() -> None:
    """The check has teeth: overwriting a block whose header is still valid leaves broken promises."""
    with Arena.create(2, PAYLOAD) as arena:
        file = RecordingSlabFile(file_bytes(SLOTS, PAYLOAD))
        format_in_memory(file, SLOTS, PAYLOAD)
        stepped = open_stepped(file)
        store = asyncio.create_task(
            stepped.slab.store(InlineMover(arena), [block_for(stepped.slab, arena, 1, 0, 1, 1)])
        )
        while not store.done():
            await let_tasks_run()
            stepped.committer.step()
        arena.payload(1)[:] = 7
        await InlineMover(arena).write(stepped.slab.region, _one(1), _one(1))
        assert any(broken_promises(left) for left in file.crash_states(STATES))
        await stepped.slab.close()


@pytest.mark.parametrize("pages", [1, 3])
def test_all_subsets_of_unsynced_pages_are_enumerated(pages: int) -> None:
    file = RecordingSlabFile(8 * PAGE_BYTES)
    for number in range(pages):
        _write(file, number, number + 1)
    left = {tuple(_first_bytes(state, pages)) for state in file.crash_states(STATES)}
    assert len(left) == 2**pages
    file.sync()
    assert {tuple(_first_bytes(state, pages)) for state in file.crash_states(STATES)} == {tuple(range(1, pages + 1))}


def test_a_page_written_twice_may_keep_either_content() -> None:
    file = RecordingSlabFile(8 * PAGE_BYTES)
    _write(file, 0, 1)
    _write(file, 0, 2)
    assert {_first_bytes(state, 1)[0] for state in file.crash_states(STATES)} == {0, 1, 2}


def _one(slot: int) -> SlotArray:
    return np.array([slot], np.int32)


def _write_page(file: RecordingSlabFile, slot: int, record: bytes) -> None:
    page = np.zeros(PAGE_BYTES, np.uint8)
    page[: len(record)] = np.frombuffer(record, np.uint8)
    file.write(SlabGeometry.for_payload(SLOTS, PAYLOAD).page_offset(slot), [page])


def _write(file: RecordingSlabFile, number: int, value: int) -> None:
    file.write(number * PAGE_BYTES, [np.full(PAGE_BYTES, value, np.uint8)])


def _first_bytes(file: MemorySlabFile, pages: int) -> list[int]:
    content = np.empty(pages * PAGE_BYTES, np.uint8)
    file.read(0, [content])
    return [int(content[number * PAGE_BYTES]) for number in range(pages)]
