"""Damage hits exactly one payload byte of a valid block."""

from pathlib import Path

import pytest

from blockyard.cli.slab_damage import flip_slab_byte, slab_blocks
from blockyard.core.vocabulary import ROOT_KEY, BlockId, ChainDigest, Epoch, Generation, IdentityDigest
from blockyard.tiers.g3_slab.layout import SlabGeometry
from blockyard.tiers.g3_slab.superblock import Superblock, pack_superblock
from blockyard.tiers.header import HeaderState, SlotHeader, pack_header

PAYLOAD_BYTES = 8_192
SLAB_ID = b"s" * 16
GEOMETRY = SlabGeometry.for_payload(4, PAYLOAD_BYTES)


def header(slot: int, state: HeaderState) -> SlotHeader:
    return SlotHeader(
        generation=Generation(1),
        identity=IdentityDigest(b"i" * 32),
        digest=ChainDigest(bytes([slot]) * 32),
        parent=ROOT_KEY,
        position=0,
        payload_bytes=PAYLOAD_BYTES,
        checksum=bytes(16),
        slot=BlockId(slot),
        file_id=SLAB_ID,
        state=state,
    )


@pytest.fixture
def slab(tmp_path: Path) -> Path:
    """A slab with a block in slot 1, a freed one in slot 2, and a stranger's file beside it."""
    superblock = Superblock(
        slab_id=SLAB_ID,
        folder_id=bytes(16),
        geometry=GEOMETRY,
        worker_epoch=Epoch(1),
        clean=False,
        version=1,
    )
    path = tmp_path / "some.slab"
    with path.open("wb") as file:
        file.truncate(GEOMETRY.total_bytes)
        file.seek(4_096)
        file.write(pack_superblock(superblock))
        for slot, state in ((1, HeaderState.READY), (2, HeaderState.FREE)):
            file.seek(GEOMETRY.page_offset(slot))
            file.write(pack_header(header(slot, state)))
    (tmp_path / "notes.txt").write_text("not a slab")
    return path


def test_only_valid_blocks_are_found(slab: Path) -> None:
    (block,) = slab_blocks(slab.parent)
    assert (block.file, block.payload_offset) == (str(slab), GEOMETRY.payload_offset + GEOMETRY.stride_bytes)
    assert (block.identity, block.key, block.payload_bytes) == (b"i" * 32, b"\x01" * 16, PAYLOAD_BYTES)


def test_one_byte_of_the_payload_changes(slab: Path) -> None:
    before = slab.read_bytes()
    (block,) = slab_blocks(slab.parent)
    flip_slab_byte(block)
    after = slab.read_bytes()
    changed = [place for place in range(len(before)) if before[place] != after[place]]
    first = GEOMETRY.payload_offset + GEOMETRY.stride_bytes
    assert len(changed) == 1
    assert first <= changed[0] < first + PAYLOAD_BYTES
    assert len(slab_blocks(slab.parent)) == 1
