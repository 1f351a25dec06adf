"""Damage done on purpose to a slab file on disk: one payload byte flipped.

The proof run uses it to show that damage is found. Only payload bytes of whole, valid blocks are touched.
Threading: functions block for a few milliseconds.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from blockyard.core.errors import ForeignFileError
from blockyard.tiers.g3_slab.header_pages import HeaderPages
from blockyard.tiers.g3_slab.slab_file import PosixSlabFile
from blockyard.tiers.g3_slab.superblock import read_superblock
from blockyard.tiers.header import SlotHeader

_FLIP: Final = 0x10


@dataclass(frozen=True, slots=True)
class SlabBlock:
    """A block as it lies in a slab file."""

    file: Path
    payload_offset: int
    header: SlotHeader


def slab_blocks(folder: Path) -> list[SlabBlock]:
    """Every block that the slab files in ``folder`` hold now; files of other kinds are passed over."""
    found: list[SlabBlock] = []
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        file = PosixSlabFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path, direct=False)
        try:
            superblock = read_superblock(file, str(path))
            geometry = superblock.geometry
            pages = HeaderPages(file, geometry, superblock.slab_id)
            pages.scan()
            for slot in range(geometry.slots):
                reading = pages.read(slot)
                if reading.verdict.is_block:
                    offset = geometry.payload_offset + slot * geometry.stride_bytes
                    found.append(SlabBlock(path, offset, reading.header))
        except ForeignFileError:
            continue
        finally:
            file.close()
    return found


def flip_slab_byte(block: SlabBlock) -> None:
    """Flip a bit in the middle of the payload on disk, behind the back of whoever serves it."""
    place = block.payload_offset + block.header.payload_bytes // 2
    descriptor = os.open(block.file, os.O_RDWR | os.O_CLOEXEC)
    try:
        byte = os.pread(descriptor, 1, place)[0]
        os.pwrite(descriptor, bytes((byte ^ _FLIP,)), place)
        # The server reads past the page cache: the change must be on the device.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
