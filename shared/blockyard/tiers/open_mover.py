"""Choose the mover: the best one that, here and now, really moves a block and brings it back unchanged.

Libraries that load, kernels that accept a call and file systems that accept a flag prove nothing; a block that went to
a scratch file in the slab's folder and came back does. The scratch file and a small arena keep real slots untouched.
Invariants: the choice and its reason are returned together; a mover the operator named is never replaced silently.
Threading: called once at start, from the event loop.
"""

import os
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum, unique
from pathlib import Path
from typing import Final

import numpy as np

from blockyard.core.errors import ConfigurationError, TransferError
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import MoveOutcome, Mover, MoverPreference, SlabRegion
from blockyard.tiers.g3_slab.slab_file import PosixSlabFile, storage_error
from blockyard.tiers.plain_mover import PlainMover

_PROBE_BLOCKS: Final = 2
MoverFactory = Callable[[Arena], Awaitable[Mover]]


@unique
class MoverSelection(StrEnum):
    """How a mover came to be chosen, as a label."""

    SETTING = "setting"
    PROBED = "probed"
    """It is the best there is, and moved a block here."""
    FALLBACK = "fallback"
    """Nothing better worked."""


@dataclass(frozen=True, slots=True)
class ChosenMover:
    """A mover, how it came to be this one, and why, in words for a log line."""

    mover: Mover
    selection: MoverSelection
    reason: str


async def open_mover(preference: MoverPreference, arena: Arena, *, folder: Path, direct: bool) -> ChosenMover:
    """Open the best mover that works.

    Args:
        preference: what the operator wants.
        arena: the arena to move between; its stride is the probe's block size.
        folder: folder of the slab files.
        direct: whether they bypass the page cache.

    Raises:
        ConfigurationError: NIXL was named and does not work here; says why.
        StorageError: the folder has no room for two blocks, or refuses files.
    """
    if preference is MoverPreference.PLAIN:
        return ChosenMover(PlainMover(arena), MoverSelection.SETTING, "chosen by the settings")
    reasons: list[str] = []
    for name, factory in _nixl_factories(reasons, direct=direct):
        obstacle = await _obstacle(factory, arena.payload_bytes, folder, direct=direct)
        if not obstacle:
            try:
                reason = "moved a block and read it back unchanged"
                return ChosenMover(await factory(arena), MoverSelection.PROBED, reason)
            except TransferError as error:
                # The whole arena may be refused where a small one is not, e.g. for want of memory that may be locked.
                obstacle = str(error)
        reasons.append(f"{name}: {obstacle}")
    if preference is MoverPreference.NIXL:
        raise ConfigurationError("NIXL does not work here", key="g3.mover", reason="; ".join(reasons))
    return ChosenMover(PlainMover(arena), MoverSelection.FALLBACK, "; ".join(reasons))


def _nixl_factories(reasons: list[str], *, direct: bool) -> list[tuple[str, MoverFactory]]:
    """Movers on NIXL, best first; none, with a reason, where the SDK is not installed."""
    try:
        # Imported here: the SDK is optional and takes a quarter of a second to load.
        from blockyard.tiers.nixl.posix_agent import PosixQueue
        from blockyard.tiers.nixl.posix_mover import PosixMover
    except ImportError as error:
        reasons.append(f"nixl_cu12 cannot be imported: {error}")
        return []

    def factory(io_queue: PosixQueue) -> MoverFactory:
        async def open_one(arena: Arena) -> Mover:
            return await PosixMover.open(arena, io_queue)

        return open_one

    # Through the page cache io_uring hands writes to slow kernel workers; with direct I/O it is the faster of the two.
    queues = (PosixQueue.URING, PosixQueue.AIO) if direct else (PosixQueue.AIO, PosixQueue.URING)
    return [(f"nixl {io_queue.value}", factory(io_queue)) for io_queue in queues]


async def _obstacle(factory: MoverFactory, payload_bytes: int, folder: Path, *, direct: bool) -> str:
    """Move a block out and back in swapped slots; the empty string if it came back equal, else what went wrong."""
    with Arena.create(_PROBE_BLOCKS, payload_bytes) as arena:
        try:
            file = _scratch_file(folder, _PROBE_BLOCKS * arena.stride_bytes, direct=direct)
        except OSError as error:
            raise storage_error(error, folder, "make a scratch file") from error
        try:
            mover = await factory(arena)
            try:
                return await _round_trip(mover, arena, SlabRegion(file, 0, arena.stride_bytes, _PROBE_BLOCKS))
            finally:
                await mover.close()
        except TransferError as error:
            return str(error)
        finally:
            file.close()


def _scratch_file(folder: Path, size: int, *, direct: bool) -> PosixSlabFile:
    fd, name = tempfile.mkstemp(prefix="mover-probe-", dir=folder)
    try:
        os.unlink(name)
        os.posix_fallocate(fd, 0, size)
        return PosixSlabFile(fd, Path(name), direct=direct)
    except OSError:
        os.close(fd)
        raise


async def _round_trip(mover: Mover, arena: Arena, region: SlabRegion) -> str:
    pattern = np.random.default_rng(7).integers(0, 256, arena.stride_bytes, np.uint8)
    first, second = np.array([0], np.int32), np.array([1], np.int32)
    arena.strides(0, 1)[:] = pattern
    moves = [await mover.write(region, first, second), await mover.read(region, second, second)]
    if any(outcome is not MoveOutcome.DONE for outcomes in moves for outcome in outcomes):
        return "the block did not move"
    return "" if np.array_equal(arena.strides(1, 1), pattern) else "the block came back changed"
