"""Two superblocks, the newer valid one counts."""

import numpy as np
import pytest

from blockyard.core.errors import ForeignFileError
from blockyard.core.vocabulary import Epoch
from blockyard.testing.slab_files import MemorySlabFile
from blockyard.testing.slab_kit import OWNER, file_bytes, format_in_memory
from blockyard.tiers.arena import PAGE_BYTES
from blockyard.tiers.checksum import record_checksum
from blockyard.tiers.g3_slab.layout import SlabGeometry
from blockyard.tiers.g3_slab.superblock import Superblock, pack_superblock, read_superblock, write_superblock


@pytest.fixture
def file() -> MemorySlabFile:
    file = MemorySlabFile(file_bytes(4))
    format_in_memory(file, 4)
    return file


def damage(file: MemorySlabFile, copy: int) -> None:
    file.write(copy * PAGE_BYTES, [np.full(PAGE_BYTES, 7, np.uint8)])


def test_a_new_slab_says_what_it_is(file: MemorySlabFile) -> None:
    found = read_superblock(file, "slab")
    assert (found.folder_id, found.geometry) == (OWNER, SlabGeometry(4, PAGE_BYTES))
    assert found.clean
    assert len(found.slab_id) == 16


def test_copies_are_written_in_turn_and_the_newest_counts(file: MemorySlabFile) -> None:
    found = read_superblock(file, "slab")
    file.writes.clear()
    for epoch in (7, 8):
        found = found.next(worker_epoch=Epoch(epoch), clean=False)
        write_superblock(file, found)
        assert read_superblock(file, "slab") == found
    assert sorted(offset for offset, _ in file.writes) == [0, PAGE_BYTES]


@pytest.mark.parametrize("copy", [0, 1])
def test_one_damaged_copy_is_survived(file: MemorySlabFile, copy: int) -> None:
    before = read_superblock(file, "slab")
    damage(file, copy)
    assert read_superblock(file, "slab").slab_id == before.slab_id


def test_two_damaged_copies_are_no_slab(file: MemorySlabFile) -> None:
    damage(file, 0)
    damage(file, 1)
    with pytest.raises(ForeignFileError, match=r"file=g3/slab-0.*move the file away"):
        read_superblock(file, "g3/slab-0")


def test_another_format_is_refused(file: MemorySlabFile) -> None:
    page = bytearray(pack_superblock(read_superblock(file, "slab")))
    page[8] = 9
    page[4088:] = record_checksum(bytes(page[:4088])).to_bytes(8, "little")
    file.write(0, [np.frombuffer(bytes(page), np.uint8)])
    with pytest.raises(ForeignFileError, match="format=9"):
        read_superblock(file, "slab")


def test_a_file_that_is_too_short_is_no_slab() -> None:
    with pytest.raises(ForeignFileError):
        read_superblock(MemorySlabFile(100), "slab")


def test_the_layout_keeps_payloads_aligned_and_behind_the_pages() -> None:
    for slots in (1, 256, 257, 100_000):
        geometry = SlabGeometry.for_payload(slots, 5000)
        assert geometry.payload_offset % (2 << 20) == 0
        assert geometry.page_offset(slots) <= geometry.payload_offset
        assert geometry.stride_bytes == 8192
        assert geometry.total_bytes == geometry.payload_offset + slots * 8192


def test_superblock_fields_lie_at_their_places(file: MemorySlabFile) -> None:
    found: Superblock = read_superblock(file, "slab")
    page = pack_superblock(found)
    assert page[:8] == b"BYSLAB01"
    assert (page[16:32], page[32:48]) == (found.slab_id, OWNER)
    assert int.from_bytes(page[12:16], "little") == 1
    assert int.from_bytes(page[56:60], "little") == 4
    assert int.from_bytes(page[60:64], "little") == PAGE_BYTES
    assert int.from_bytes(page[64:72], "little") == 1 << 20
    assert int.from_bytes(page[72:80], "little") == 2 << 20
