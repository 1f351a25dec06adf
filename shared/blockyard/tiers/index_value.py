"""The 64-byte value of one block in the prefix index, and its locator columns on the wire.

::

    0 version u8 | 1 flags u8 (bit 0: locator) | 2 index u8 | 3 blocks u8 | 4 stride u32 | 8 touched u32 | 12 zero u32
    16 pack id (16) | 32 claim cells of nodes (32 bytes, all zero where nobody claims)

Values are fixed width, so an answer of thousands of entries is decoded as columns. An entry is a hint: one that makes
no sense is the same as none. Little-endian throughout.
Threading: pure functions over values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from blockyard.core.errors import MalformedFrameError
from blockyard.core.pack_plan import MAX_PACK_BLOCKS
from blockyard.core.vocabulary import PackId

VALUE_VERSION: Final = 1
VALUE_BYTES: Final = 64
HEAD_BYTES: Final = 32
"""The part that locates a block; the other half belongs to claims."""
WIRE_LOCATOR_BYTES: Final = 32
_LOCATOR_FLAG: Final = 1

_VALUE: Final = np.dtype(
    [
        ("version", "u1"),
        ("flags", "u1"),
        ("index", "u1"),
        ("blocks", "u1"),
        ("stride", "<u4"),
        ("touched", "<u4"),
        ("zero", "<u4"),
        ("pack", "V16"),
        ("claims", "V32"),
    ]
)
_WIRE: Final = np.dtype(
    [("pack", "V16"), ("index", "u1"), ("blocks", "u1"), ("zero", "<u2"), ("stride", "<u4"), ("rest", "V8")]
)


@dataclass(frozen=True, slots=True)
class Locator:
    """Where one block lies in the object store: a record of a pack."""

    pack: PackId
    index: int
    """Record of the block within the pack."""
    blocks: int
    """Blocks in the whole pack."""
    stride_bytes: int
    """Bytes from record to record."""


def encode_heads(locators: Sequence[Locator], touched_seconds: int) -> bytes:
    """First halves of the values for ``locators``, 32 bytes each, touched at this Unix time."""
    table = np.zeros(len(locators), dtype=_VALUE)
    table["version"] = VALUE_VERSION
    table["flags"] = _LOCATOR_FLAG
    table["index"] = [locator.index for locator in locators]
    table["blocks"] = [locator.blocks for locator in locators]
    table["stride"] = [locator.stride_bytes for locator in locators]
    table["touched"] = touched_seconds & 0xFFFF_FFFF
    table["pack"] = np.frombuffer(b"".join(locator.pack for locator in locators), dtype="V16")
    rows = np.frombuffer(table.tobytes(), dtype=np.uint8).reshape(-1, VALUE_BYTES)
    return rows[:, :HEAD_BYTES].tobytes()


def decode_values(values: Sequence[bytes | None]) -> list[Locator | None]:
    """Locator of each value; ``None`` where the key is absent, holds no locator, or makes no sense."""
    found: list[Locator | None] = [None] * len(values)
    present = [index for index, value in enumerate(values) if value is not None and len(value) == VALUE_BYTES]
    table = np.frombuffer(b"".join(values[index] or b"" for index in present), dtype=_VALUE)
    for row in np.flatnonzero(_sensible(table)).tolist():
        entry = table[row]
        found[present[row]] = Locator(
            pack=PackId(entry["pack"].tobytes()),
            index=int(entry["index"]),
            blocks=int(entry["blocks"]),
            stride_bytes=int(entry["stride"]),
        )
    return found


def _sensible(table: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    usable = (table["version"] == VALUE_VERSION) & ((table["flags"] & _LOCATOR_FLAG) != 0)
    bounded = (table["blocks"] <= MAX_PACK_BLOCKS) & (table["index"] < table["blocks"]) & (table["stride"] > 0)
    return np.asarray(usable & bounded, dtype=np.bool_)


def encode_wire_locators(locators: Sequence[Locator | None]) -> bytes:
    """Locator column of a ``Found`` message: 32 bytes per key, zero where there is none."""
    rows = [
        b"".join(
            (locator.pack, bytes((locator.index, locator.blocks, 0, 0)), locator.stride_bytes.to_bytes(4, "little"))
        ).ljust(WIRE_LOCATOR_BYTES, b"\0")
        if locator is not None
        else bytes(WIRE_LOCATOR_BYTES)
        for locator in locators
    ]
    return b"".join(rows)


def decode_wire_locators(column: bytes) -> list[Locator | None]:
    """Locators of a ``Found`` message, aligned with its keys.

    Raises:
        MalformedFrameError: the column is not a whole number of locators.
    """
    if len(column) % WIRE_LOCATOR_BYTES:
        raise MalformedFrameError("a locator has 32 bytes", bytes=len(column))
    table = np.frombuffer(column, dtype=_WIRE)
    return [
        Locator(PackId(row["pack"].tobytes()), int(row["index"]), int(row["blocks"]), int(row["stride"]))
        if row["blocks"]
        else None
        for row in table
    ]
