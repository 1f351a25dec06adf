"""Where the arena comes from."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ByteSize

from blockyard.core.errors import ConfigurationError, NotReadyError
from blockyard.core.vocabulary import BlockId, Epoch, Generation
from blockyard.runtime.memory_limit import MemoryLimit
from blockyard.runtime.settings import G2Section, NodeSection, NodeSettings, UnsafeSection
from blockyard.tiers.arena import Arena, ArenaGeometry
from blockyard.wire.worker_channel import ArenaInfo
from blockyard_offload_worker.arena_owner import HEADROOM_BYTES, SLOT_BYTES, ArenaOrigin, ArenaOwner, ArenaPlan

SIZE = 8_192
PLAN = ArenaPlan(4, SIZE, verify=True)


@pytest.fixture
def owner() -> Iterator[ArenaOwner]:
    owner = ArenaOwner(PLAN, Epoch(3))
    yield owner
    owner.close()


def handed_over(slots: int = 4, payload_bytes: int = SIZE) -> tuple[ArenaInfo, int]:
    with Arena.create(slots, payload_bytes) as arena:
        return arena.info(), os.dup(arena.fd)


def test_there_is_no_arena_before_the_first_attach(owner: ArenaOwner) -> None:
    with pytest.raises(NotReadyError):
        _ = owner.arena


def test_the_first_attach_makes_an_arena_and_the_second_keeps_it(owner: ArenaOwner) -> None:
    made = owner.attach(None, None)
    assert (made.slots, made.payload_bytes, made.creator_epoch) == (4, SIZE, 3)
    info, fd = handed_over()
    assert owner.attach(info, fd) is made
    assert owner.origin is ArenaOrigin.CREATED
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_an_arena_that_fits_is_taken_over(owner: ArenaOwner) -> None:
    info, fd = handed_over()
    assert owner.attach(info, fd).arena_id == info.arena
    assert owner.origin is ArenaOrigin.ADOPTED


def test_an_arena_of_other_sizes_is_replaced(owner: ArenaOwner) -> None:
    info, fd = handed_over(slots=8)
    arena = owner.attach(info, fd)
    assert (arena.slots, owner.origin) == (4, ArenaOrigin.CREATED)
    assert arena.arena_id != info.arena


def test_a_descriptor_that_is_no_arena_is_replaced_and_closed(owner: ArenaOwner) -> None:
    info, fd = handed_over()
    os.close(fd)
    fd = os.memfd_create("nothing")
    inode = os.fstat(fd).st_ino
    assert owner.attach(info, fd).slots == 4
    assert inode not in {path.stat().st_ino for path in Path("/proc/self/fd").iterdir() if path.exists()}


async def test_a_replaced_arena_is_another_empty_one_and_late_writes_land_in_the_old_one(owner: ArenaOwner) -> None:
    made = owner.attach(None, None)
    before = made.arena_id
    with Arena.adopt(os.dup(made.fd), made.info()) as writer:
        made.begin_write(BlockId(1), Generation(7)).fill(1)
        held = os.fstat(writer.fd).st_blocks
        fresh = await owner.replace()
        assert owner.arena is fresh
        assert fresh.arena_id != before
        assert (fresh.slots, fresh.payload_bytes, owner.origin) == (4, SIZE, ArenaOrigin.CREATED)
        assert os.fstat(writer.fd).st_blocks < held, "who maps the old one does not hold its memory"
        assert not writer.generation(1)
        assert not writer.payload(BlockId(1)).any()
        writer.begin_write(BlockId(2), Generation(9)).fill(1)
        assert [fresh.generation(slot) for slot in range(4)] == [0, 0, 0, 0]
        assert not fresh.payload(BlockId(2)).any()
    assert owner.attach(None, None) is fresh


async def test_an_arena_stays_where_the_system_refuses_another_one(
    owner: ArenaOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = owner.attach(None, None)

    def refuse(*_: object, **__: object) -> Arena:
        raise ConfigurationError("no memory")

    monkeypatch.setattr(Arena, "create", refuse)
    with pytest.raises(ConfigurationError):
        await owner.replace()
    assert owner.arena is made
    assert made.generation(0) == 0


def test_the_plan_fills_the_capacity_with_whole_blocks() -> None:
    settings = NodeSettings(
        node=NodeSection(block_bytes=ByteSize(SIZE)),
        g2=G2Section(capacity=ByteSize(3 * SIZE + 1)),
        unsafe=UnsafeSection(),
    )
    assert ArenaPlan.of(settings) == ArenaPlan(3, SIZE, verify=True)


def test_a_capacity_that_no_arena_can_have_is_refused_at_the_start() -> None:
    node = NodeSection(block_bytes=ByteSize(4_096))
    most = NodeSettings(node=node, g2=G2Section(capacity=ByteSize(((1 << 31) - 1) * 4_096)))
    assert ArenaPlan.of(most).slots == (1 << 31) - 1
    with pytest.raises(ConfigurationError, match=r"g2\.capacity"):
        NodeSettings(node=node, g2=G2Section(capacity=ByteSize((1 << 31) * 4_096)))


def test_only_the_unsafe_setting_switches_checks_off() -> None:
    settings = NodeSettings(node=NodeSection(block_bytes=ByteSize(SIZE)), unsafe=UnsafeSection())
    skipping = settings.model_copy(update={"unsafe": UnsafeSection(skip_verification=True)})
    blind = ArenaOwner(ArenaPlan.of(skipping), Epoch(1))
    assert not blind.verify
    assert ArenaOwner(ArenaPlan.of(settings), Epoch(1)).verify


@pytest.mark.parametrize("adopted", [False, True])
def test_the_memory_of_the_arena_is_taken_at_once_where_it_is_limited(adopted: bool) -> None:
    owner = ArenaOwner(PLAN, Epoch(3), reserve=True)
    arena = owner.attach(*(handed_over() if adopted else (None, None)))
    assert owner.reservation is not None
    assert owner.reservation.wait(10.0)
    assert os.fstat(arena.fd).st_blocks * 512 == arena.geometry.total_bytes
    owner.close()
    owner.close()


def test_elsewhere_it_is_taken_as_it_is_written(owner: ArenaOwner) -> None:
    arena = owner.attach(None, None)
    assert owner.reservation is None
    assert os.fstat(arena.fd).st_blocks * 512 < arena.geometry.total_bytes


# --- memory limit -------------------------------------------------------------------------------------------------
NEEDED = ArenaGeometry(4, SIZE).total_bytes + HEADROOM_BYTES + 12 * SLOT_BYTES
"""With 8 slots on disk."""


@pytest.mark.parametrize("limit", [None, MemoryLimit(NEEDED, Path("memory.max"))])
def test_an_arena_that_fits_into_the_memory_is_taken(limit: MemoryLimit | None) -> None:
    PLAN.check_memory(limit, 8)


def test_an_arena_with_which_the_process_would_be_killed_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="need 257 MiB, and the memory limit here is 257 MiB") as raised:
        PLAN.check_memory(MemoryLimit(NEEDED - 1, Path("/sys/fs/cgroup/memory.max")), 8)
    assert raised.value.fields["key"] == "g2.capacity"
    assert raised.value.fields["limit"] == "/sys/fs/cgroup/memory.max"
