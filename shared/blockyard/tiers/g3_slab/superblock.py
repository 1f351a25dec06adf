"""The superblock of a slab: which slab this is, of which folder, in which geometry, and whether it was closed cleanly.

Two copies are written alternately, each followed by a sync; the valid one with the higher version counts. So a crash in
the middle of a write leaves the other one.
Layout: 0 magic, 8 format u32, 12 flags u32 (bit 0 clean), 16 slab id, 32 folder id, 48 worker epoch, 56 slots u32,
60 stride u32, 64 header offset, 72 payload offset, 80 version u64, 4088 xxh3-64 of the page before it.
Threading: values and functions that block; called by whoever opens or closes the slab.
"""

import struct
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from blockyard.core.errors import ForeignFileError, TransferError
from blockyard.core.vocabulary import Epoch
from blockyard.tiers.arena import PAGE_BYTES
from blockyard.tiers.base import SlabFile
from blockyard.tiers.checksum import record_checksum
from blockyard.tiers.g3_slab.layout import HEADER_OFFSET, SlabGeometry
from blockyard.tiers.g3_slab.slab_file import aligned_bytes

FORMAT: Final = 1
_MAGIC: Final = b"BYSLAB01"
_CLEAN: Final = 1
_FIELDS: Final = struct.Struct("<8sII16s16sQIIQQQ")
_COPIES: Final = 2
_CHECKSUM_OFFSET: Final = PAGE_BYTES - 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Superblock:
    """What a slab says about itself."""

    slab_id: bytes
    folder_id: bytes
    geometry: SlabGeometry
    worker_epoch: Epoch
    clean: bool
    """True if the last life that wrote to it ended in order."""
    version: int

    def next(self, *, worker_epoch: Epoch, clean: bool) -> "Superblock":
        """The superblock to write after this one."""
        return replace(self, worker_epoch=worker_epoch, clean=clean, version=self.version + 1)


def pack_superblock(block: Superblock) -> bytes:
    """One page."""
    geometry = block.geometry
    page = bytearray(PAGE_BYTES)
    _FIELDS.pack_into(
        page,
        0,
        _MAGIC,
        FORMAT,
        _CLEAN if block.clean else 0,
        block.slab_id,
        block.folder_id,
        block.worker_epoch,
        geometry.slots,
        geometry.stride_bytes,
        HEADER_OFFSET,
        geometry.payload_offset,
        block.version,
    )
    page[_CHECKSUM_OFFSET:] = record_checksum(page[:_CHECKSUM_OFFSET]).to_bytes(8, "little")
    return bytes(page)


def write_superblock(file: SlabFile, block: Superblock) -> None:
    """Write ``block`` over the older copy and make it durable.

    Raises:
        StorageError: the device failed; the newer of the old copies still counts.
    """
    page = aligned_bytes(PAGE_BYTES)
    page[:] = np.frombuffer(pack_superblock(block), np.uint8)
    file.write(block.version % _COPIES * PAGE_BYTES, [page])
    file.sync()


def read_superblock(file: SlabFile, name: str) -> Superblock:
    """The superblock that counts.

    Args:
        file: the slab.
        name: how to call it in errors.

    Raises:
        ForeignFileError: not a slab, or of a format that this version does not know.
    """
    pages = aligned_bytes(_COPIES * PAGE_BYTES)
    try:
        file.read(0, [pages])
    except TransferError as error:
        raise ForeignFileError("the file is no slab: it cannot be read or is too short", file=name) from error
    copies = [_parse(pages[start : start + PAGE_BYTES].tobytes(), name) for start in (0, PAGE_BYTES)]
    valid = [block for blocks in copies for block in blocks]
    if not valid:
        raise ForeignFileError("the file is no slab, or both of its superblocks are damaged", file=name)
    return max(valid, key=lambda block: block.version)


def _parse(page: bytes, name: str) -> tuple[Superblock, ...]:
    """The superblock in ``page``; none where the page holds no valid one."""
    if page[:8] != _MAGIC or record_checksum(page[:_CHECKSUM_OFFSET]).to_bytes(8, "little") != page[_CHECKSUM_OFFSET:]:
        return ()
    _, version, flags, slab_id, folder_id, epoch, slots, stride, headers, payloads, number = _FIELDS.unpack_from(page)
    geometry = SlabGeometry(slots, stride)
    if version != FORMAT or headers != HEADER_OFFSET or payloads != geometry.payload_offset:
        raise ForeignFileError("the slab has another format", file=name, format=version, known=FORMAT)
    block = Superblock(
        slab_id=slab_id,
        folder_id=folder_id,
        geometry=geometry,
        worker_epoch=Epoch(epoch),
        clean=bool(flags & _CLEAN),
        version=number,
    )
    return (block,)
