"""A slab in memory that a test drives step by step, and movers that move when they are told to.

Threading: one event loop; the committer has no thread, the test calls ``step``.
"""

import asyncio
from dataclasses import dataclass

import numpy as np

from blockyard.core.vocabulary import Epoch
from blockyard.testing.byte_patterns import header_of, pattern
from blockyard.testing.slab_files import MemorySlabFile
from blockyard.tiers.arena import PAGE_BYTES, Arena
from blockyard.tiers.base import MoveOutcome, SlabRegion, SlotArray
from blockyard.tiers.block_moves import Direction, check_move, move_blocks
from blockyard.tiers.checksum import payload_checksum
from blockyard.tiers.g3_slab.committer import CommitPolicy, Committer
from blockyard.tiers.g3_slab.layout import SlabGeometry
from blockyard.tiers.g3_slab.slab import Slab, StoreItem
from blockyard.tiers.g3_slab.slab_folder import format_slab
from blockyard.tiers.g3_slab.slab_opening import OpenedSlab, open_pages

OWNER = bytes(range(16))
_NAME = "slab in memory"


class InlineMover:
    """Moves at once, in the caller's thread."""

    def __init__(self, arena: Arena) -> None:
        """Move between ``arena`` and any region."""
        self._arena = arena

    @property
    def name(self) -> str:
        """Name for metrics and logs."""
        return "inline"

    @property
    def failure(self) -> str:
        """Nothing but single moves can fail here."""
        return ""

    async def write(self, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray) -> list[MoveOutcome]:
        """Arena to file."""
        return self._now(Direction.WRITE, region, arena_slots, file_slots)

    async def read(self, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray) -> list[MoveOutcome]:
        """File to arena."""
        return self._now(Direction.READ, region, arena_slots, file_slots)

    async def close(self) -> None:
        """Nothing is left to do."""

    def _now(
        self, direction: Direction, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray
    ) -> list[MoveOutcome]:
        check_move(self._arena, region, arena_slots, file_slots)
        return move_blocks(self._arena, region, direction, arena_slots, file_slots)


class HeldMover(InlineMover):
    """Writes nothing until ``release``; then the oldest held write happens at once."""

    def __init__(self, arena: Arena) -> None:
        """Move between ``arena`` and any region."""
        super().__init__(arena)
        self._held: list[asyncio.Future[None]] = []
        self._writes: list[tuple[SlabRegion, SlotArray, SlotArray]] = []

    @property
    def held(self) -> int:
        """Writes that wait for ``release``."""
        return len(self._held)

    async def write(self, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray) -> list[MoveOutcome]:
        """Arena to file, after ``release``."""
        turn = asyncio.get_running_loop().create_future()
        self._held.append(turn)
        self._writes.append((region, arena_slots, file_slots))
        await turn
        return [MoveOutcome.DONE] * len(arena_slots)

    def release(self) -> None:
        """Let the oldest held write happen; nothing if none is held."""
        if self._held:
            self._now(Direction.WRITE, *self._writes.pop(0))
            self._held.pop(0).set_result(None)


@dataclass(frozen=True, slots=True)
class SteppedSlab:
    """A slab, its committer and its file."""

    slab: Slab
    committer: Committer
    file: MemorySlabFile


def file_bytes(slots: int, payload_bytes: int = PAGE_BYTES) -> int:
    """Size of a slab file."""
    return SlabGeometry.for_payload(slots, payload_bytes).total_bytes


def format_in_memory(file: MemorySlabFile, slots: int, payload_bytes: int = PAGE_BYTES) -> None:
    """Make ``file`` an empty slab."""
    format_slab(file, SlabGeometry.for_payload(slots, payload_bytes), OWNER, Epoch(1))


def open_stepped(file: MemorySlabFile, policy: CommitPolicy | None = None) -> SteppedSlab:
    """Open the formatted slab in ``file``; nothing is committed before ``step``."""
    opened = open_pages(file, _NAME, Epoch(2))
    committer = Committer(file, opened.pages, policy or CommitPolicy())
    return SteppedSlab(Slab(opened, committer), committer, file)


def after_restart(file: MemorySlabFile) -> OpenedSlab:
    """What a restarted worker finds in ``file``."""
    return open_pages(file, _NAME, Epoch(3))


def block_for(slab: Slab, arena: Arena, seed: int, arena_slot: int, slot: int, generation: int) -> StoreItem:
    """Put the bytes of block ``seed`` into an arena slot and say where to store them."""
    payload = arena.payload(arena_slot)
    payload[:] = pattern(seed, len(payload))
    header = header_of(seed, payload, file_id=slab.slab_id, slot=slot, generation=generation)
    return StoreItem(arena_slot, header)


def broken_promises(file: MemorySlabFile) -> list[int]:
    """Slots whose header in ``file`` is valid and whose payload is not the one it vouches for."""
    opened = after_restart(file)
    geometry = opened.superblock.geometry
    region, broken = geometry.region(file), []
    payload = np.empty(geometry.stride_bytes, np.uint8)
    for slot in range(geometry.slots):
        reading = opened.pages.read(slot)
        if reading.verdict.is_block:
            file.read(region.offset(slot), [payload])
            if payload_checksum(payload[: reading.header.payload_bytes].data) != reading.header.checksum:
                broken.append(slot)
    return broken


async def let_tasks_run() -> None:
    """Give every task that can go on the chance to do so."""
    for _ in range(10):
        await asyncio.sleep(0)
