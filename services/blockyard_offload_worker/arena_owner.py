"""The arena of this node and where it came from: made here, or taken over from an earlier life of the worker.

The block-manager keeps a descriptor of the arena over the life of a worker and hands it back with its attach, so the
blocks of host memory survive this process. An arena whose sizes do not fit the settings is not taken over: the blocks
in it are of another layout, and a new one is made.

Invariants: one arena at a time; an attach changes it only where it asks to give up this very arena, for the sake of a
writer that stands still (``replace``). Threading: event loop only.
"""

import asyncio
import os
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

from blockyard.core.errors import ConfigurationError, ForeignFileError, LayoutMismatchError, NotReadyError
from blockyard.core.vocabulary import Epoch
from blockyard.runtime.logs import get_logger
from blockyard.runtime.memory_limit import MemoryLimit
from blockyard.runtime.settings import NodeSettings
from blockyard.tiers.arena import Arena, ArenaGeometry, check_sizes, page_multiple
from blockyard.wire.worker_channel import ArenaInfo
from blockyard_offload_worker.arena_reservation import ArenaReservation

HEADROOM_BYTES: Final = 256 << 20
"""What this process needs beside the arena: about 120 MiB, the rest for what is read and written besides."""
SLOT_BYTES: Final = 256
"""What it needs for each slot of host memory and disk."""
_MIB: Final = 1 << 20
_log: Final = get_logger(__name__)


@unique
class ArenaOrigin(Enum):
    """How this process came to its arena."""

    CREATED = "created"
    ADOPTED = "adopted"


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """What the settings ask for."""

    slots: int
    payload_bytes: int
    verify: bool
    """Compare checksums on every copy out of a tier: always, outside of tests that prove the checks matter."""

    @classmethod
    def of(cls, settings: NodeSettings) -> "ArenaPlan":
        """Plan of a node: as many blocks as fit the capacity of G2, at least one.

        Raises:
            ConfigurationError: no arena can have this size; said at the start instead of at every attach.
        """
        payload_bytes = int(settings.node.block_bytes)
        slots = max(1, int(settings.g2.capacity) // page_multiple(payload_bytes))
        check_sizes("g2.capacity", slots, payload_bytes)
        return cls(slots, payload_bytes, verify=not settings.unsafe.skip_verification)

    def check_memory(self, limit: MemoryLimit | None, disk_slots: int) -> None:
        """Refuse an arena with which the kernel would kill this process as soon as the arena fills.

        Args:
            limit: what the process may have.
            disk_slots: slots of the disk tier.

        Raises:
            ConfigurationError: arena and process do not fit into the limit.
        """
        arena = ArenaGeometry(self.slots, self.payload_bytes).total_bytes
        process = HEADROOM_BYTES + SLOT_BYTES * (self.slots + disk_slots)
        needed = arena + process
        if limit is not None and needed > limit.bytes:
            raise ConfigurationError(
                f"host memory tier and process need {_mib(needed)}, and the memory limit here is {_mib(limit.bytes)}: "
                "lower the one or raise the other",
                key="g2.capacity",
                arena_bytes=arena,
                process_bytes=process,
                limit_bytes=limit.bytes,
                limit=str(limit.file),
            )


class ArenaOwner:
    """Owns the arena of this process."""

    def __init__(self, plan: ArenaPlan, worker_epoch: Epoch, *, reserve: bool = False) -> None:
        """Own nothing until the first attach.

        Args:
            plan: what to make.
            worker_epoch: this life of the process.
            reserve: whether to take the memory of the arena at once, in the background.
        """
        self._plan = plan
        self._worker_epoch = worker_epoch
        self._reserve = reserve
        self._reservation: ArenaReservation | None = None
        self._arena: Arena | None = None
        self._origin = ArenaOrigin.CREATED

    @property
    def arena(self) -> Arena:
        """The arena.

        Raises:
            NotReadyError: no block-manager has attached yet.
        """
        if self._arena is None:
            raise NotReadyError("there is no arena before the first attach")
        return self._arena

    @property
    def origin(self) -> ArenaOrigin:
        """How the arena came here; meaningful once it exists."""
        return self._origin

    @property
    def reservation(self) -> ArenaReservation | None:
        """What takes the memory of the arena, where that is done at once."""
        return self._reservation

    @property
    def verify(self) -> bool:
        """Whether copies out of the tiers compare checksums."""
        return self._plan.verify

    def attach(self, info: ArenaInfo | None, fd: int | None) -> Arena:
        """Own an arena from now on: the one that is here, else the one handed over if it fits, else a new one.

        Args:
            info: what the block-manager says about the descriptor.
            fd: descriptor of an arena; this object's from now on, in every case.

        Raises:
            ConfigurationError: the system refuses a new arena of this size.
        """
        if self._arena is not None:
            if fd is not None:
                os.close(fd)
            return self._arena
        adopted = None if fd is None else self._adopt(info, fd)
        if adopted is not None:
            self._origin = ArenaOrigin.ADOPTED
            self._arena = adopted
        else:
            self._arena = Arena.create(self._plan.slots, self._plan.payload_bytes, creator_epoch=self._worker_epoch)
        if self._reserve:
            self._reservation = ArenaReservation(self._arena)
        _log.info("arena ready", origin=self._origin.value, slots=self._arena.slots, arena=self._arena.arena_id.hex())
        return self._arena

    async def replace(self) -> Arena:
        """Own a new, empty arena instead; the old one lives on in processes that map it, without its memory.

        A writer that stands still would otherwise hold as much memory as the new arena takes. The caller sees to it
        that nothing here uses the old one.

        Raises:
            NotReadyError: there is none.
            ConfigurationError: the system refuses a new arena; the old one stays.
        """
        old = self.arena
        arena = Arena.create(self._plan.slots, self._plan.payload_bytes, creator_epoch=self._worker_epoch)
        if self._reservation is not None:
            self._reservation.close()
        await asyncio.to_thread(old.discard)
        old.close()
        self._arena, self._origin, self._reservation = arena, ArenaOrigin.CREATED, None
        if self._reserve:
            self._reservation = ArenaReservation(arena)
        _log.warning("arena replaced: host memory starts empty", slots=arena.slots, arena=arena.arena_id.hex())
        return arena

    def close(self) -> None:
        """Give the arena up; its bytes live on while another process holds a descriptor. Idempotent."""
        if self._reservation is not None:
            self._reservation.close()
        if self._arena is not None:
            self._arena.close()

    def _adopt(self, info: ArenaInfo | None, fd: int) -> Arena | None:
        try:
            arena = Arena.adopt(fd, info)
        except (ForeignFileError, LayoutMismatchError) as error:
            os.close(fd)
            _log.warning("the arena handed over is not usable; its blocks are lost", reason=str(error))
            return None
        if (arena.slots, arena.payload_bytes) != (self._plan.slots, self._plan.payload_bytes):
            _log.warning(
                "the arena handed over does not fit the settings; its blocks are lost",
                slots=arena.slots,
                payload_bytes=arena.payload_bytes,
                wanted_slots=self._plan.slots,
                wanted_payload_bytes=self._plan.payload_bytes,
            )
            arena.close()
            return None
        return arena


def _mib(size: int) -> str:
    return f"{-(-size // _MIB)} MiB"
