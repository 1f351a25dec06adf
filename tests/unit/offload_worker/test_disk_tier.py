"""Opening the disk: what stops the service, what only costs the tier, and which mover is taken."""

import os
from pathlib import Path

import pytest

from blockyard.core.errors import ConfigurationError, NoSpaceError, NotReadyError, TransferError
from blockyard.core.vocabulary import Epoch, ItemStatus
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import MoverPreference
from blockyard.tiers.g3_slab.committer import CommitPolicy
from blockyard.tiers.g3_slab.slab import Slab
from blockyard.tiers.open_mover import ChosenMover, MoverSelection, open_mover
from blockyard_offload_worker import disk_tier
from blockyard_offload_worker.disk_tier import DiskOutage, DiskPlan, DiskTier

SIZE = 8_192


def plan(folder: Path, preference: MoverPreference = MoverPreference.PLAIN) -> DiskPlan:
    return DiskPlan(folder, 4, SIZE, preference, CommitPolicy())


async def opened(folder: Path, preference: MoverPreference = MoverPreference.PLAIN) -> DiskTier:
    disk = await DiskTier.open(plan(folder, preference), Epoch(1))
    assert isinstance(disk, DiskTier)
    return disk


@pytest.mark.parametrize(
    ("error", "status"),
    [(NoSpaceError("full"), ItemStatus.NO_SPACE), (TransferError("broken"), ItemStatus.IO_ERROR)],
)
async def test_a_device_that_fails_costs_the_tier_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, status: ItemStatus
) -> None:
    def failing(*_: object, **__: object) -> Slab:
        raise error

    monkeypatch.setattr(Slab, "open", failing)
    outage = await DiskTier.open(plan(tmp_path), Epoch(1))
    assert isinstance(outage, DiskOutage)
    assert outage.status is status
    assert outage.detail == f"g3.folder: {error}"


async def test_a_file_that_is_not_ours_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "slab-0").write_bytes(os.urandom(65_536))
    with pytest.raises(ConfigurationError) as caught:
        await DiskTier.open(plan(tmp_path), Epoch(1))
    assert caught.value.fields["key"] == "g3.folder"
    assert "move the file away" in str(caught.value)


async def test_there_is_no_mover_before_an_arena_is_bound(tmp_path: Path) -> None:
    disk = await opened(tmp_path)
    with pytest.raises(NotReadyError):
        _ = disk.mover
    await disk.close()


async def test_the_mover_is_opened_once(tmp_path: Path) -> None:
    disk = await opened(tmp_path)
    with Arena.create(4, SIZE) as arena:
        first = await disk.bind(arena)
        assert await disk.bind(arena) is first
        assert disk.mover is first.mover
        await disk.close()


async def test_a_mover_ends_with_its_arena_and_the_next_one_is_opened_on_another(tmp_path: Path) -> None:
    disk = await opened(tmp_path)
    with Arena.create(2, SIZE) as first, Arena.create(2, SIZE) as second:
        before = (await disk.bind(first)).mover
        await disk.unbind()
        await disk.unbind()
        with pytest.raises(NotReadyError):
            _ = disk.mover
        assert (await disk.bind(second)).mover is not before
        await disk.close()


async def test_a_disk_without_room_for_a_trial_gets_the_plain_mover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(preference: MoverPreference, arena: Arena, *, folder: Path, direct: bool) -> ChosenMover:
        if preference is not MoverPreference.PLAIN:
            raise NoSpaceError("cannot make a scratch file")
        return await open_mover(preference, arena, folder=folder, direct=direct)

    monkeypatch.setattr(disk_tier, "open_mover", full)
    disk = await opened(tmp_path, MoverPreference.AUTO)
    with Arena.create(4, SIZE) as arena:
        chosen = await disk.bind(arena)
        assert (chosen.mover.name, "scratch file" in chosen.reason) == ("plain", True)
        assert chosen.selection is MoverSelection.FALLBACK
        await disk.close()
        named = DiskTier(disk.slab, plan(tmp_path, MoverPreference.NIXL))
        with pytest.raises(ConfigurationError):
            await named.bind(arena)
