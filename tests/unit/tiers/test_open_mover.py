"""The choice of a mover and its reason."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockyard.core.errors import ConfigurationError, StorageError
from blockyard.tiers.arena import PAGE_BYTES, Arena
from blockyard.tiers.base import MoverPreference
from blockyard.tiers.open_mover import MoverSelection, open_mover

AUTO, NIXL, PLAIN = MoverPreference


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(4, PAGE_BYTES) as arena:
        yield arena


@pytest.fixture
def without_nixl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nixl_cu12", None)
    for name in [name for name in sys.modules if name.startswith("blockyard.tiers.nixl.")]:
        monkeypatch.delitem(sys.modules, name)


async def test_the_plain_mover_is_used_when_it_was_named(arena: Arena, tmp_path: Path) -> None:
    chosen = await open_mover(PLAIN, arena, folder=tmp_path, direct=False)
    assert (chosen.mover.name, chosen.reason) == ("plain", "chosen by the settings")
    assert chosen.selection is MoverSelection.SETTING
    await chosen.mover.close()


@pytest.mark.usefixtures("without_nixl")
async def test_without_the_sdk_the_plain_mover_takes_over_and_says_why(arena: Arena, tmp_path: Path) -> None:
    chosen = await open_mover(AUTO, arena, folder=tmp_path, direct=False)
    assert (chosen.mover.name, chosen.selection) == ("plain", MoverSelection.FALLBACK)
    assert "nixl_cu12" in chosen.reason
    await chosen.mover.close()


@pytest.mark.usefixtures("without_nixl")
async def test_a_mover_that_was_named_is_not_replaced(arena: Arena, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nixl_cu12"):
        await open_mover(NIXL, arena, folder=tmp_path, direct=False)


async def test_the_probe_leaves_nothing_behind(arena: Arena, tmp_path: Path) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    chosen = await open_mover(AUTO, arena, folder=tmp_path, direct=False)
    await chosen.mover.close()
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 1


async def test_a_folder_without_room_is_an_error_of_the_folder(arena: Arena, tmp_path: Path) -> None:
    pytest.importorskip("nixl_cu12")
    with pytest.raises(StorageError, match="scratch file"):
        await open_mover(AUTO, arena, folder=tmp_path / "absent", direct=False)
