"""Copies within this process: on an agent that does what the test says, and on the real NIXL."""

import gc
import mmap
import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from blockyard.core.errors import TransferError
from blockyard.testing.clock import FakeClock
from blockyard.tiers.block_moves import Direction
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.nixl.transfer_state import TransferState
from blockyard.tiers.nixl.ucx_agent import AddressArray, UcxMemory, UcxTransfer
from blockyard.tiers.nixl.ucx_copies import UcxCopies, UnendedTransferError

RUNNING, DONE, FAILED = TransferState.RUNNING, TransferState.DONE, TransferState.FAILED
ONE = np.ones(1, np.uint64)


@dataclass
class ScriptedAgent:
    """Answers polls with the states of its script, the last one for ever."""

    script: list[TransferState] = field(default_factory=lambda: [DONE])
    registered: list[UcxMemory] = field(default_factory=list)
    posted: int = 0
    finished: int = 0
    closed: bool = False

    def register(self, memory: ByteArray) -> UcxMemory:
        self.registered.append(UcxMemory(memory, object()))
        return self.registered[-1]

    def deregister(self, memory: UcxMemory) -> None:
        self.registered.remove(memory)

    def post(self, direction: Direction, arena: AddressArray, engine: AddressArray, sizes: AddressArray) -> UcxTransfer:
        self.posted += 1
        return UcxTransfer(object(), running=True, refused=False)

    def poll(self, transfer: UcxTransfer) -> TransferState:
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def finish(self, transfer: UcxTransfer) -> None:
        self.finished += 1

    def close(self) -> None:
        self.closed = True


def test_a_request_is_polled_until_it_ends_and_only_then_released() -> None:
    agent, naps = ScriptedAgent([RUNNING] * 6 + [DONE]), list[float]()
    UcxCopies(agent, clock=FakeClock(), nap=naps.append).copy(Direction.READ, ONE, ONE, ONE)
    assert (agent.posted, agent.finished) == (1, 1)
    assert naps == pytest.approx([20e-6, 40e-6, 60e-6])


def test_a_request_that_failed_is_released_and_told() -> None:
    agent = ScriptedAgent([RUNNING, FAILED])
    copies = UcxCopies(agent, clock=FakeClock(), nap=lambda _: None)
    with pytest.raises(TransferError, match="failed"):
        copies.copy(Direction.WRITE, ONE, ONE, ONE)
    assert agent.finished == 1
    agent.script = [DONE]
    copies.copy(Direction.WRITE, ONE, ONE, ONE)


def test_a_request_that_never_ends_is_kept_with_its_memory_and_nothing_follows_it() -> None:
    agent, clock = ScriptedAgent([RUNNING]), FakeClock()
    copies = UcxCopies(agent, clock=clock, nap=lambda _: clock.advance(1.0))
    memory = copies.register(np.zeros(8, np.uint8))
    with pytest.raises(UnendedTransferError, match="30 s"):
        copies.copy(Direction.READ, ONE, ONE, ONE)
    assert agent.finished == 0
    with pytest.raises(UnendedTransferError, match="never ended"):
        copies.copy(Direction.READ, ONE, ONE, ONE)
    with pytest.raises(UnendedTransferError, match="never ended"):
        copies.register(np.zeros(8, np.uint8))
    assert agent.posted == 1
    copies.forget(memory)
    copies.close()
    assert (agent.registered, agent.closed) == ([memory], False)


def test_closing_forgets_what_is_registered_and_nothing_twice() -> None:
    agent = ScriptedAgent()
    copies = UcxCopies(agent)
    first, second = (copies.register(np.zeros(8, np.uint8)) for _ in range(2))
    copies.forget(first)
    copies.forget(first)
    assert agent.registered == [second]
    copies.close()
    assert (agent.registered, agent.closed) == ([], True)


def test_a_copy_of_nothing_asks_for_nothing() -> None:
    agent, nothing = ScriptedAgent(), np.empty(0, np.uint64)
    UcxCopies(agent).copy(Direction.READ, nothing, nothing, nothing)
    assert agent.posted == 0


@pytest.fixture(scope="module")
def real() -> Iterator[UcxCopies]:
    copies = UcxCopies.open()
    yield copies
    copies.close()


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("page_bytes", [1, 512, 4_096, 16_384, 300_001])
def test_many_parts_arrive_where_they_belong_and_touch_nothing_else(
    real: UcxCopies, direction: Direction, page_bytes: int
) -> None:
    random, pages = np.random.default_rng(page_bytes), 64
    engine, arena = (real.register(random.integers(0, 256, pages * page_bytes, np.uint8)) for _ in range(2))
    there, here = random.permutation(pages)[:40], random.permutation(pages)[:40]
    source, target = (engine, arena) if direction is Direction.READ else (arena, engine)
    taken, put = (there, here) if direction is Direction.READ else (here, there)
    expected = target.memory.copy().reshape(pages, page_bytes)
    expected[put] = source.memory.reshape(pages, page_bytes)[taken]
    before = source.memory.copy()
    real.copy(
        direction,
        np.uint64(arena.address) + here.astype(np.uint64) * np.uint64(page_bytes),
        np.uint64(engine.address) + there.astype(np.uint64) * np.uint64(page_bytes),
        np.full(40, page_bytes, np.uint64),
    )
    assert np.array_equal(target.memory.reshape(pages, page_bytes), expected)
    assert np.array_equal(source.memory, before)
    real.forget(engine)
    real.forget(arena)


@pytest.mark.parametrize("offset", [-1, 1, 1 << 40])
@pytest.mark.parametrize("direction", Direction)
def test_a_part_outside_of_registered_memory_is_refused_and_nothing_moves(
    real: UcxCopies, direction: Direction, offset: int
) -> None:
    # The array is longer than what is registered on both sides, so a copy that went through would be seen, not fatal.
    whole = np.zeros(3 * 4_096, np.uint8)
    engine, arena = real.register(whole[4_096:8_192]), real.register(np.ones(4_096, np.uint8))
    page = np.full(1, 4_096, np.uint64)
    with pytest.raises(TransferError, match="NIXL refused the request"):
        real.copy(direction, _at(arena.address), _at(engine.address + offset), page)
    assert not whole.any()
    assert arena.memory.all()
    real.forget(engine)
    real.forget(arena)


def test_memory_that_was_forgotten_is_refused(real: UcxCopies) -> None:
    engine, arena = real.register(np.zeros(4_096, np.uint8)), real.register(np.ones(4_096, np.uint8))
    real.forget(engine)
    with pytest.raises(TransferError, match="NIXL refused the request"):
        real.copy(Direction.WRITE, _at(arena.address), _at(engine.address), np.full(1, 4_096, np.uint64))
    assert not engine.memory.any()
    real.forget(arena)


def test_memory_stays_mapped_until_it_is_forgotten_and_not_longer(real: UcxCopies) -> None:
    fd = os.memfd_create("kv", os.MFD_CLOEXEC)
    os.ftruncate(fd, 4_096)
    mapped = mmap.mmap(fd, 4_096)
    os.close(fd)
    gone = weakref.ref(mapped)
    registered = real.register(np.frombuffer(mapped, np.uint8))
    del mapped
    gc.collect()
    assert gone() is not None
    real.forget(registered)
    del registered
    gc.collect()
    assert gone() is None


def test_memory_that_comes_and_goes_two_hundred_times_leaves_nothing(real: UcxCopies) -> None:
    size = 1 << 20
    arena = real.register(np.zeros(size, np.uint8))
    sizes = np.full(1, size, np.uint64)
    _come_and_go(real, arena, sizes, rounds=20)
    before = _open_files(), _mappings(), _resident_bytes()
    _come_and_go(real, arena, sizes, rounds=200)
    files, mappings, resident = _open_files(), _mappings(), _resident_bytes()
    assert files == before[0]
    assert mappings <= before[1] + 4
    assert resident < before[2] + 20 * size
    real.forget(arena)


def _come_and_go(real: UcxCopies, arena: UcxMemory, sizes: AddressArray, *, rounds: int) -> None:
    for number in range(rounds):
        fd = os.memfd_create("kv", os.MFD_CLOEXEC)
        os.ftruncate(fd, arena.memory.nbytes)
        engine = real.register(np.frombuffer(mmap.mmap(fd, arena.memory.nbytes), np.uint8))
        os.close(fd)
        engine.memory[:] = number % 251
        real.copy(Direction.READ, _at(arena.address), _at(engine.address), sizes)
        assert arena.memory[0] == arena.memory[-1] == number % 251
        real.forget(engine)


def _at(address: int) -> AddressArray:
    return np.array([address], np.uint64)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
