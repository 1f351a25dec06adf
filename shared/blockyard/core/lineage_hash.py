"""Positional lineage hashes of NVIDIA Dynamo's KVBM, bit for bit: where a block stands, and behind which one.

::

    mode 2 ‖ position P ‖ sequence hash 64 ‖ low R bits of the parent's sequence hash       128 bits, big-endian

Invariants: a lineage hash is compared as a whole, since siblings under different parents can agree in position and
parent fragment.
Threading: pure functions and frozen values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from blockyard.core.errors import RequestError
from blockyard.core.kvbm_hashing import unsigned_64
from blockyard.core.whole_numbers import MASK_64, is_whole, require_bytes

_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class _Layout:
    mode: int
    position_bits: int
    fragment_bits: int


_LAYOUTS: Final = (_Layout(0, 8, 54), _Layout(1, 16, 46), _Layout(2, 24, 38))


def _layout(position: int) -> _Layout:
    for layout in _LAYOUTS:
        if is_whole(position, most=(1 << layout.position_bits) - 1):
            return layout
    raise RequestError("a lineage hash has positions from 0 to 2**24 - 1", position=str(position))


@dataclass(frozen=True, slots=True, order=True)
class PositionalLineageHash:
    """Position, own sequence hash and a fragment of the parent's; ordered by these, in this order."""

    position: int
    current: int
    parent_fragment: int = 0

    def __post_init__(self) -> None:
        """Refuse what does not fit into 128 bits."""
        bits = _layout(self.position).fragment_bits
        if not (is_whole(self.current) and is_whole(self.parent_fragment, most=(1 << bits) - 1)):
            raise RequestError("a part of the lineage hash is out of range", position=self.position)

    @classmethod
    def of(cls, position: int, current: int, parent: int | None = None) -> "PositionalLineageHash":
        """Hash of the block at ``position``; ``parent`` is the sequence hash before it, ``None`` for a root."""
        return cls(position, current, 0 if parent is None else _fragment(parent, position))

    def extend(self, current: int) -> "PositionalLineageHash":
        """Hash of a child whose sequence hash is ``current``."""
        return PositionalLineageHash.of(self.position + 1, current, self.current)

    def __int__(self) -> int:
        """The 128-bit value."""
        layout = _layout(self.position)
        head = layout.mode << layout.position_bits | self.position
        return (head << 64 | self.current) << layout.fragment_bits | self.parent_fragment

    def to_bytes(self) -> bytes:
        """16 bytes, big-endian."""
        return int(self).to_bytes(16, "big")

    @classmethod
    def from_bytes(cls, data: bytes) -> "PositionalLineageHash":
        """Inverse of ``to_bytes``.

        Raises:
            RequestError: not 16 bytes, or a mode that does not exist.
        """
        require_bytes("lineage hash", data, 16)
        value = int.from_bytes(data, "big")
        mode = value >> 126
        if mode >= len(_LAYOUTS):
            raise RequestError("not a lineage hash", mode=mode)
        layout = _LAYOUTS[mode]
        position = value >> (64 + layout.fragment_bits) & ((1 << layout.position_bits) - 1)
        if _layout(position) is not layout:
            raise RequestError("the position of a lineage hash is not in its shortest form", position=position)
        return cls(position, value >> layout.fragment_bits & MASK_64, value & ((1 << layout.fragment_bits) - 1))

    def __str__(self) -> str:
        """``position:current[:parent fragment]`` in base 58, as KVBM names objects; roots have no third part."""
        parts = [str(self.position), _base58(self.current)]
        if self.position:
            parts.append(_base58(self.parent_fragment))
        return ":".join(parts)


def lineage_hashes(
    sequence: Sequence[int], *, first_position: int = 0, parent: int | None = None
) -> list[PositionalLineageHash]:
    """Lineage hashes of consecutive sequence hashes; ``parent`` is the one before them, ``None`` at a root."""
    parents = [parent, *sequence[:-1]]
    return [
        PositionalLineageHash.of(first_position + index, current, before)
        for index, (current, before) in enumerate(zip(sequence, parents, strict=False))
    ]


def positional_sequence_hash(position: int, sequence: int, block: int) -> int:
    """Older 128-bit form: mode 2 ‖ position ‖ low bits of the block hash, then the 64-bit sequence hash.

    Raises:
        RequestError: a position from 2**31 on, or a hash that is no u64.
    """
    sequence, block = unsigned_64("sequence hash", sequence), unsigned_64("block hash", block)
    for mode, (position_bits, block_bits) in enumerate(((8, 54), (16, 46), (24, 38), (31, 31))):
        if is_whole(position, most=(1 << position_bits) - 1):
            head = (mode << position_bits | position) << block_bits | block & ((1 << block_bits) - 1)
            return head << 64 | sequence
    raise RequestError("a positional sequence hash has positions from 0 to 2**31 - 1", position=str(position))


def _fragment(parent: int, child_position: int) -> int:
    return unsigned_64("parent", parent) & ((1 << _layout(child_position).fragment_bits) - 1)


def _base58(value: int) -> str:
    """Base 58 (Bitcoin alphabet) of the value as 8 big-endian bytes: a leading zero byte is a ``1``."""
    leading_zeros = 8 - (value.bit_length() + 7) // 8
    digits = ""
    while value:
        value, digit = divmod(value, 58)
        digits = _BASE58[digit] + digits
    return _BASE58[0] * leading_zeros + digits
