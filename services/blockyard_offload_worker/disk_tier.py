"""The local disk of a node (G3): its slab, opened at start, and the mover, opened once the arena is known.

A disk that has no room or fails at start does not stop the node: host memory works on, and stores to disk are answered
with what is wrong. A file that is not ours does stop it, since going on could destroy somebody's data.

Invariants: the mover is opened once per arena and closed before the slab. Threading: event loop; opening a slab blocks
and runs in a thread.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from blockyard.core.errors import (
    ConfigurationError,
    ForeignFileError,
    NoSpaceError,
    NotReadyError,
    StorageError,
)
from blockyard.core.vocabulary import Epoch, ItemStatus
from blockyard.runtime.logs import get_logger
from blockyard.runtime.node_folder import NodeFolder
from blockyard.runtime.settings import NodeSettings
from blockyard.tiers.arena import Arena, check_sizes, page_multiple
from blockyard.tiers.base import Mover, MoverPreference
from blockyard.tiers.g3_slab.committer import CommitPolicy
from blockyard.tiers.g3_slab.slab import Slab
from blockyard.tiers.open_mover import ChosenMover, MoverSelection, open_mover

_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DiskPlan:
    """What the settings ask for."""

    folder: Path
    slots: int
    payload_bytes: int
    preference: MoverPreference
    policy: CommitPolicy

    @classmethod
    def of(cls, settings: NodeSettings, node: NodeFolder) -> "DiskPlan":
        """Plan of a node: as many blocks as fit the capacity of G3, at least one.

        Raises:
            ConfigurationError: no slab can have this size.
        """
        payload_bytes = int(settings.node.block_bytes)
        slots = max(1, int(settings.g3.capacity) // page_multiple(payload_bytes))
        check_sizes("g3.capacity", slots, payload_bytes)
        return cls(
            folder=node.slabs(settings),
            slots=slots,
            payload_bytes=payload_bytes,
            preference=MoverPreference(settings.g3.mover.value),
            policy=CommitPolicy(settings.g3.commit_interval_ms / 1_000, int(settings.g3.commit_bytes)),
        )


@dataclass(frozen=True, slots=True)
class DiskOutage:
    """Why there is no disk tier although the settings ask for one."""

    status: ItemStatus
    """What stores are answered with."""
    detail: str


class DiskTier:
    """The slab and the mover on it."""

    def __init__(self, slab: Slab, plan: DiskPlan) -> None:
        """Own ``slab``."""
        self.slab: Final = slab
        self._plan = plan
        self._chosen: ChosenMover | None = None

    @classmethod
    async def open(cls, plan: DiskPlan, worker_epoch: Epoch) -> "DiskTier | DiskOutage":
        """Open or make the slab; an outage where the device has no room or fails.

        Raises:
            StartupError: the slab is in use, is not ours, or holds blocks of another layout.
        """
        try:
            slab = await asyncio.to_thread(
                Slab.open,
                plan.folder,
                plan.slots,
                plan.payload_bytes,
                worker_epoch=worker_epoch,
                policy=plan.policy,
            )
        except ForeignFileError as error:
            raise ConfigurationError(
                f"{error.detail}: let g3.folder name another folder, or move the file away",
                key="g3.folder",
                **error.fields,
            ) from error
        except StorageError as error:
            status = ItemStatus.NO_SPACE if isinstance(error, NoSpaceError) else ItemStatus.IO_ERROR
            detail = f"g3.folder: {error}"
            _log.error("going on without the disk tier", reason=detail)
            return DiskOutage(status, detail)
        _log.info(
            "slab open",
            slots=slab.slots,
            ready=slab.scan.ready,
            damaged=slab.scan.damaged,
            clean=slab.was_clean,
            direct=slab.direct,
            obstacle=slab.direct_obstacle,
        )
        return cls(slab, plan)

    @property
    def mover(self) -> Mover:
        """The mover.

        Raises:
            NotReadyError: no arena is bound yet.
        """
        if self._chosen is None:
            raise NotReadyError("there is no mover before the first attach")
        return self._chosen.mover

    async def bind(self, arena: Arena) -> ChosenMover:
        """The mover on ``arena``, opened at the first call.

        Raises:
            ConfigurationError: the settings name a mover that does not work here.
        """
        if self._chosen is None:
            self._chosen = await self._open_mover(arena)
            _log.info("mover ready", mover=self._chosen.mover.name, reason=self._chosen.reason)
        return self._chosen

    async def unbind(self) -> None:
        """End the mover, which moves nothing now: its arena is given up.

        Raises:
            TransferError: a move never ended.
        """
        if self._chosen is not None:
            await self._chosen.mover.close()
            self._chosen = None

    async def _open_mover(self, arena: Arena) -> ChosenMover:
        folder, direct = self._plan.folder, self.slab.direct
        try:
            return await open_mover(self._plan.preference, arena, folder=folder, direct=direct)
        except StorageError as error:
            if self._plan.preference is MoverPreference.NIXL:
                raise ConfigurationError("NIXL cannot be tried here", key="g3.mover", reason=error.finding) from error
            # A disk filled by others has no room for a trial, but the slab has its space since it was made.
            plain = await open_mover(MoverPreference.PLAIN, arena, folder=folder, direct=direct)
            return ChosenMover(plain.mover, MoverSelection.FALLBACK, f"no trial was possible: {error.detail}")

    async def close(self) -> None:
        """End the mover, commit what waits and mark the slab clean.

        Raises:
            StorageError: the clean mark could not be written.
            TransferError: a move never ended.
        """
        try:
            if self._chosen is not None:
                await self._chosen.mover.close()
        finally:
            await self.slab.close()
