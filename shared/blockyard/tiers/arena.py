"""The G2 arena of a node: one sealed memfd with a superblock page, a header table and the payloads.

    0 superblock (4 KiB) | header table, 256 bytes per slot | payloads, stride = payload rounded up to 4 KiB

The offload-worker creates it, the block-manager keeps a descriptor without mapping it, the remote-tier maps it too. So
the blocks survive the worker, and nothing survives all of them.

Write of a slot: ``begin_write`` (control word := WRITING) -> payload -> ``publish`` (record, then READY).
Read of a slot: ``read`` says READY and the identity fits -> copy and hash -> ``read`` again: same control word ->
compare the checksum.

Invariants: a grant writes only with a generation above that of the header; control words change by single aligned
8-byte stores; the size is sealed, so no access beyond the end can happen in any process that maps it.
Threading: any number of readers; one writer per granted slot, which the grant decides. ``close`` only when no thread
uses the arena; views that are still referenced stay valid, the memory goes when the last of them does.
"""

import fcntl
import mmap
import os
import secrets
import struct
import warnings
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, final

import numpy as np

from blockyard.core.errors import (
    BlockStateError,
    ConfigurationError,
    ForeignFileError,
    LayoutMismatchError,
    StaleGenerationError,
)
from blockyard.core.vocabulary import Epoch, Generation
from blockyard.tiers.checksum import ByteArray, record_checksum
from blockyard.tiers.header import (
    CONTROL_OFFSET,
    HEADER_BYTES,
    MAGIC,
    MOST_PAYLOAD_BYTES,
    MOST_SLOTS,
    SECOND_CONTROL_OFFSET,
    HeaderReading,
    HeaderState,
    SlotHeader,
    control_word,
    generation_of,
    pack_header,
    read_record,
)
from blockyard.wire.worker_channel import ArenaInfo

PAGE_BYTES: Final = 4_096
_ARENA_MAGIC: Final = b"BYARNA01"
_FORMAT: Final = 1
_NO_EPOCH: Final = Epoch(0)
_SUPERBLOCK: Final = struct.Struct("<8sII16sQIIQQQQQ")
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_WORDS_PER_HEADER: Final = HEADER_BYTES // 8
_CONTROL: Final = CONTROL_OFFSET // 8
_SECOND_CONTROL: Final = SECOND_CONTROL_OFFSET // 8


def page_multiple(size: int) -> int:
    """``size`` rounded up to whole pages of 4 KiB."""
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def check_sizes(setting: str, slots: int, payload_bytes: int) -> None:
    """Refuse a tier of this size.

    Raises:
        ConfigurationError: it holds nothing, or headers have too few bits for it; names ``setting``.
    """
    if not 1 <= slots <= MOST_SLOTS or not 1 <= payload_bytes <= MOST_PAYLOAD_BYTES:
        raise ConfigurationError("a tier cannot have this size", key=setting, slots=slots, payload=payload_bytes)


@dataclass(frozen=True, slots=True)
class ArenaGeometry:
    """Sizes and places within an arena; all follow from slots and payload bytes."""

    slots: int
    payload_bytes: int

    def __post_init__(self) -> None:
        """Refuse sizes that hold nothing or that headers cannot name."""
        check_sizes("g2.capacity", self.slots, self.payload_bytes)

    @property
    def stride_bytes(self) -> int:
        """Bytes from payload to payload."""
        return page_multiple(self.payload_bytes)

    @property
    def payload_offset(self) -> int:
        """Where the first payload lies."""
        return PAGE_BYTES + page_multiple(self.slots * HEADER_BYTES)

    @property
    def total_bytes(self) -> int:
        """Size of the memfd."""
        return self.payload_offset + self.slots * self.stride_bytes


@final
class Arena:
    """A mapped arena. Make one with ``create`` or ``adopt``."""

    def __init__(self, fd: int, arena_id: bytes, creator_epoch: Epoch, geometry: ArenaGeometry) -> None:
        """Map ``fd``; use ``create`` or ``adopt`` instead."""
        self.arena_id: Final = arena_id
        self.creator_epoch: Final = creator_epoch
        self.geometry: Final = geometry
        mapped = mmap.mmap(fd, geometry.total_bytes)
        memory = np.frombuffer(mapped, np.uint8)
        start = geometry.payload_offset
        self._headers: ByteArray = memory[PAGE_BYTES : PAGE_BYTES + geometry.slots * HEADER_BYTES].reshape(
            -1, HEADER_BYTES
        )
        self._words = self._headers.reshape(-1).data.cast("Q")
        self._payloads: ByteArray = memory[start:].reshape(geometry.slots, geometry.stride_bytes)
        self._mapped: mmap.mmap | None = mapped
        # Last: an arena whose mapping failed does not own the descriptor.
        self._fd = fd

    @classmethod
    def create(cls, slots: int, payload_bytes: int, *, creator_epoch: Epoch = _NO_EPOCH) -> Self:
        """Make a new arena of ``slots`` empty slots; memory is taken as payloads are written.

        Raises:
            ConfigurationError: a size is zero, or the system refuses a file of that size.
        """
        geometry = ArenaGeometry(slots, payload_bytes)
        arena_id = secrets.token_bytes(16)
        fd = os.memfd_create("blockyard-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, geometry.total_bytes)
            os.pwrite(fd, _superblock(arena_id, creator_epoch, geometry), 0)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS | fcntl.F_SEAL_SEAL)
            return cls(fd, arena_id, creator_epoch, geometry)
        except OSError as error:
            os.close(fd)
            raise ConfigurationError(
                "cannot make the arena", bytes=geometry.total_bytes, reason=str(error.strerror)
            ) from error

    @classmethod
    def adopt(cls, fd: int, expected: ArenaInfo | None = None) -> Self:
        """Map an arena made by another process.

        Args:
            fd: its descriptor; belongs to the arena from success on, else it stays the caller's.
            expected: what the sender says it is.

        Raises:
            ForeignFileError: not an arena, damaged, its size is not sealed, or it cannot be mapped.
            LayoutMismatchError: an arena, but not the expected one.
        """
        arena_id, epoch, geometry = _read_superblock(fd)
        if expected is not None:
            found = (arena_id, geometry.slots, geometry.stride_bytes, geometry.total_bytes)
            if found != (expected.arena, expected.slots, expected.stride_bytes, expected.bytes):
                raise LayoutMismatchError("another arena than announced", arena=arena_id.hex(), slots=geometry.slots)
        try:
            return cls(fd, arena_id, epoch, geometry)
        except OSError as error:
            raise ForeignFileError("the arena cannot be mapped", reason=str(error.strerror)) from error

    # --- facts ----------------------------------------------------------------------------------------------------
    @property
    def fd(self) -> int:
        """The descriptor, for handing it to another process."""
        return self._fd

    @property
    def slots(self) -> int:
        """Number of slots."""
        return self.geometry.slots

    @property
    def payload_bytes(self) -> int:
        """Longest payload of a slot."""
        return self.geometry.payload_bytes

    @property
    def stride_bytes(self) -> int:
        """Bytes from payload to payload; page aligned."""
        return self.geometry.stride_bytes

    @property
    def payload_address(self) -> int:
        """Address of the first payload in this process; page aligned."""
        return int(self._payloads.ctypes.data)

    def info(self) -> ArenaInfo:
        """What travels with the descriptor."""
        size = self.geometry.total_bytes
        return ArenaInfo(arena=self.arena_id, slots=self.slots, stride_bytes=self.stride_bytes, bytes=size)

    # --- reading --------------------------------------------------------------------------------------------------
    def read(self, slot: int) -> HeaderReading:
        """Look at a slot's header; the answer is a copy."""
        return read_record(
            self._headers[slot].data, file_id=self.arena_id, slot=slot, max_payload_bytes=self.geometry.stride_bytes
        )

    def is_current(self, slot: int, generation: int) -> bool:
        """True while the slot is READY with this generation: ask again after a copy."""
        ready = control_word(generation, HeaderState.READY)
        return bool(self._words[slot * _WORDS_PER_HEADER + _CONTROL] == ready)

    def generation(self, slot: int) -> Generation:
        """Generation in the slot's header; 0 if it was never granted."""
        return generation_of(self._words[slot * _WORDS_PER_HEADER + _CONTROL])

    def payload(self, slot: int, length: int | None = None) -> ByteArray:
        """The slot's payload bytes as a view; write through it only between ``begin_write`` and ``publish``.

        Args:
            slot: which slot.
            length: bytes wanted; the arena's payload size by default.
        """
        return self._payloads[slot, : self.geometry.payload_bytes if length is None else length]

    def strides(self, first_slot: int, count: int) -> ByteArray:
        """The whole payload places of ``count`` neighbouring slots as one view, padding included."""
        return self._payloads[first_slot : first_slot + count].reshape(-1)

    # --- writing --------------------------------------------------------------------------------------------------
    def begin_write(self, slot: int, generation: Generation) -> ByteArray:
        """Start the write of a granted slot: from here on its old block is gone.

        Returns:
            The payload bytes to fill.

        Raises:
            StaleGenerationError: the header has this generation or a higher one; nothing was written.
        """
        base = slot * _WORDS_PER_HEADER
        found = generation_of(self._words[base + _CONTROL])
        if generation <= found:
            raise StaleGenerationError("the arena slot has a newer grant", slot=slot, granted=generation, found=found)
        self._words[base] = _MAGIC_WORD
        self._words[base + _CONTROL] = control_word(generation, HeaderState.WRITING)
        return self.payload(slot)

    def publish(self, header: SlotHeader) -> None:
        """Finish a write: store the record of ``header.slot`` and make it READY.

        Raises:
            StaleGenerationError: the slot is not being written under this generation; nothing was written.
            BlockStateError: the header is not READY or names another file or a longer payload.
        """
        if header.state is not HeaderState.READY or header.file_id != self.arena_id:
            raise BlockStateError("not a READY header of this arena", slot=header.slot, state=header.state.name)
        if header.payload_bytes > self.geometry.payload_bytes:
            raise BlockStateError("the payload is longer than the slot", payload=header.payload_bytes)
        base = header.slot * _WORDS_PER_HEADER
        if self._words[base + _CONTROL] != control_word(header.generation, HeaderState.WRITING):
            raise StaleGenerationError("the arena slot is not written under this grant", slot=header.slot)
        record = np.frombuffer(pack_header(header), np.uint8)
        self._headers[header.slot, 16:SECOND_CONTROL_OFFSET] = record[16:SECOND_CONTROL_OFFSET]
        ready = control_word(header.generation, HeaderState.READY)
        self._words[base + _SECOND_CONTROL] = ready
        self._words[base + _CONTROL] = ready

    def mark(self, slot: int, generation: Generation, state: HeaderState) -> None:
        """Make a slot FREE or BAD, so that no restart brings its block back.

        Raises:
            StaleGenerationError: the header has another generation; nothing was written.
            BlockStateError: another state than FREE or BAD was asked for.
        """
        if state not in (HeaderState.FREE, HeaderState.BAD):
            raise BlockStateError("a slot is marked FREE or BAD", slot=slot, state=state.name)
        base = slot * _WORDS_PER_HEADER
        found = generation_of(self._words[base + _CONTROL])
        if generation != found:
            raise StaleGenerationError("the arena slot has another grant", slot=slot, asked=generation, found=found)
        word = control_word(generation, state)
        self._words[base] = _MAGIC_WORD
        self._words[base + _CONTROL] = word
        self._words[base + _SECOND_CONTROL] = word

    # --- end ------------------------------------------------------------------------------------------------------
    def discard(self) -> None:
        """Give the memory of all slots back to the system, though others map it still: every slot was never granted.

        Headers go first, so that a reader who compares them after its copy cannot take zeros for a block. May take
        seconds where the arena is large; any thread.
        """
        if self._mapped is not None:
            start = self.geometry.payload_offset
            self._mapped.madvise(mmap.MADV_REMOVE, PAGE_BYTES, start - PAGE_BYTES)
            self._mapped.madvise(mmap.MADV_REMOVE, start, self.geometry.total_bytes - start)

    def close(self) -> None:
        """Give up the descriptor and this object's views; harmless when repeated."""
        if self._fd < 0:
            return
        os.close(self._fd)
        self._fd = -1
        self._mapped = None
        self._words = memoryview(b"").cast("Q")
        self._headers = self._payloads = np.empty((0, 0), np.uint8)

    def __enter__(self) -> Self:
        """Close the arena at the end of the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the arena."""
        self.close()

    def __del__(self) -> None:
        """Warn about an arena that nobody closed."""
        if getattr(self, "_fd", -1) >= 0:
            warnings.warn(f"unclosed arena {self.arena_id.hex()}", ResourceWarning, source=self, stacklevel=2)
            self.close()


_MAGIC_WORD: Final = int.from_bytes(MAGIC, "little")


def _superblock(arena_id: bytes, epoch: Epoch, geometry: ArenaGeometry) -> bytes:
    page = bytearray(PAGE_BYTES)
    _SUPERBLOCK.pack_into(
        page,
        0,
        _ARENA_MAGIC,
        _FORMAT,
        0,
        arena_id,
        epoch,
        geometry.slots,
        0,
        geometry.payload_bytes,
        geometry.stride_bytes,
        PAGE_BYTES,
        geometry.payload_offset,
        geometry.total_bytes,
    )
    page[-8:] = record_checksum(page[:-8]).to_bytes(8, "little")
    return bytes(page)


def _read_superblock(fd: int) -> tuple[bytes, Epoch, ArenaGeometry]:
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        page = os.pread(fd, PAGE_BYTES, 0)
        size = os.fstat(fd).st_size
    except OSError as error:
        raise ForeignFileError("the descriptor is no arena", reason=str(error.strerror)) from error
    if seals & _SEALS != _SEALS:
        raise ForeignFileError("the size of the arena is not sealed")
    if (
        len(page) < PAGE_BYTES
        or page[:8] != _ARENA_MAGIC
        or record_checksum(page[:-8]).to_bytes(8, "little") != page[-8:]
    ):
        raise ForeignFileError("the descriptor is no arena, or its superblock is damaged")
    _, version, _, arena_id, epoch, slots, _, payload_bytes, *_ = _SUPERBLOCK.unpack_from(page)
    geometry = ArenaGeometry(slots, payload_bytes)
    if version != _FORMAT or page != _superblock(arena_id, epoch, geometry) or size != geometry.total_bytes:
        raise ForeignFileError("the arena has another format", format=version, bytes=size)
    return arena_id, Epoch(epoch), geometry
