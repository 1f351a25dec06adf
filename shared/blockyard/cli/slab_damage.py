"""Damage done on purpose to a slab file on disk: one payload byte flipped.

The proof run uses it to show that damage is found. Only payload bytes of whole, valid blocks are touched.
Where the slab files lie out of reach, in the volume of a container, it runs there as a program: ``python -m
blockyard.cli.slab_damage`` takes the folder from the settings of the service and writes JSON lines.
Threading: functions block for a few milliseconds.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Final

import msgspec

from blockyard.core.errors import BlockyardError, ForeignFileError, StorageError
from blockyard.core.vocabulary import ContentKey, IdentityDigest
from blockyard.runtime.node_folder import NodeFolder
from blockyard.runtime.settings_source import load_settings
from blockyard.tiers.g3_slab.header_pages import HeaderPages
from blockyard.tiers.g3_slab.slab_file import PosixSlabFile
from blockyard.tiers.g3_slab.superblock import read_superblock

_FLIP: Final = 0x10
_STAT_BLOCK_BYTES: Final = 512


class SlabBlock(msgspec.Struct, frozen=True):
    """A block as it lies in a slab file."""

    file: str
    payload_offset: int
    payload_bytes: int
    identity: IdentityDigest
    key: ContentKey


def slab_blocks(folder: Path) -> list[SlabBlock]:
    """Every block that the slab files in ``folder`` hold now; files of other kinds are passed over."""
    found: list[SlabBlock] = []
    for path in _files(folder):
        file = PosixSlabFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path, direct=False)
        try:
            superblock = read_superblock(file, str(path))
            geometry = superblock.geometry
            pages = HeaderPages(file, geometry, superblock.slab_id)
            pages.scan()
            for slot in range(geometry.slots):
                reading = pages.read(slot)
                if reading.verdict.is_block:
                    header = reading.header
                    offset = geometry.payload_offset + slot * geometry.stride_bytes
                    found.append(SlabBlock(str(path), offset, header.payload_bytes, header.identity, header.key))
        except ForeignFileError:
            continue
        finally:
            file.close()
    return found


def flip_slab_byte(block: SlabBlock) -> None:
    """Flip a bit in the middle of the payload on disk, behind the back of whoever serves it.

    Raises:
        StorageError: the file ends before the payload does.
    """
    place = block.payload_offset + block.payload_bytes // 2
    descriptor = os.open(block.file, os.O_RDWR | os.O_CLOEXEC)
    try:
        if not (byte := os.pread(descriptor, 1, place)):
            raise StorageError("the file ends before the block", file=block.file, offset=place)
        os.pwrite(descriptor, bytes((byte[0] ^ _FLIP,)), place)
        # The server reads past the page cache: the change must be on the device.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def slab_disk_bytes(folder: Path) -> int:
    """Disk that the files in ``folder`` take."""
    return sum(path.stat().st_blocks for path in _files(folder)) * _STAT_BLOCK_BYTES


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def main() -> int:
    """``list``: all blocks, a JSON line each; ``flip BLOCK``: damage the block of such a line; ``usage``: bytes."""
    parser = argparse.ArgumentParser(prog="blockyard.cli.slab_damage", description=main.__doc__)
    parser.add_argument("order", choices=("list", "flip", "usage"))
    parser.add_argument("block", nargs="?", default="", help="a line of list")
    options = parser.parse_args()
    try:
        settings = load_settings()
        folder = NodeFolder.of(settings).slabs(settings)
        if options.order == "flip":
            flip_slab_byte(msgspec.json.decode(options.block, type=SlabBlock))
        elif options.order == "usage":
            sys.stdout.write(f"{slab_disk_bytes(folder)}\n")
        else:
            lines = (msgspec.json.encode(block).decode() for block in slab_blocks(folder))
            sys.stdout.write("".join(f"{line}\n" for line in lines))
    except (BlockyardError, OSError, msgspec.MsgspecError) as error:
        sys.stderr.write(f"blockyard.cli.slab_damage: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
