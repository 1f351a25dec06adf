"""Damage hits exactly one payload byte of a valid block."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from blockyard.cli.slab_damage import SlabBlock, flip_slab_byte, slab_blocks
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


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program, in the environment of a service whose slab files lie in ``folder``."""
    return subprocess.run(
        [sys.executable, "-m", "blockyard.cli.slab_damage", *arguments],
        env=os.environ | {"BLOCKYARD_G3__FOLDER": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_the_program_lists_and_damages_what_the_functions_do(slab: Path) -> None:
    (block,) = slab_blocks(slab.parent)
    listed = run(slab.parent, "list")
    assert msgspec.json.decode(listed.stdout, type=SlabBlock) == block
    before = slab.read_bytes()
    assert run(slab.parent, "flip", listed.stdout).returncode == 0
    after = slab.read_bytes()
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 1
    assert 0 < int(run(slab.parent, "usage").stdout) <= GEOMETRY.total_bytes + 8_192


@pytest.mark.parametrize(
    ("folder", "arguments", "words"),
    [
        (Path("/nowhere/g3"), ("list",), "/nowhere/g3"),
        (Path("/tmp"), ("flip", "no block"), "JSON"),
        (Path("/tmp"), ("flip",), "truncated"),
        (Path("/tmp"), ("flip", '{"file":"/nowhere"}'), "payload_offset"),
        (
            Path("/tmp"),
            ("flip", '{"file":"/dev/null","payload_offset":0,"payload_bytes":8,"identity":"","key":""}'),
            "the file ends before the block",
        ),
    ],
)
def test_the_program_says_what_it_cannot_do(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    done = run(folder, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
