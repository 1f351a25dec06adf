"""Where things lie in a slab file; all follows from the number of slots and the payload size.

    0 superblock A | 4096 superblock B | 1 MiB header pages, 4 KiB per slot | next 2 MiB border: payloads

Threading: frozen values.
"""

from dataclasses import dataclass
from typing import Final

from blockyard.tiers.arena import PAGE_BYTES, check_sizes, page_multiple
from blockyard.tiers.base import SlabFile, SlabRegion

HEADER_OFFSET: Final = 1 << 20
_PAYLOAD_BORDER: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class SlabGeometry:
    """Sizes and places within a slab file."""

    slots: int
    stride_bytes: int
    """Bytes from payload to payload; a multiple of 4 KiB."""

    @classmethod
    def for_payload(cls, slots: int, payload_bytes: int) -> "SlabGeometry":
        """Geometry of ``slots`` payloads of up to ``payload_bytes``.

        Raises:
            ConfigurationError: a slab of that size holds nothing, or is too large to be described.
        """
        check_sizes("g3.capacity", slots, payload_bytes)
        return cls(slots, page_multiple(payload_bytes))

    @property
    def payload_offset(self) -> int:
        """Where the first payload lies."""
        end = HEADER_OFFSET + self.slots * PAGE_BYTES
        return -(-end // _PAYLOAD_BORDER) * _PAYLOAD_BORDER

    @property
    def total_bytes(self) -> int:
        """Size of the file."""
        return self.payload_offset + self.slots * self.stride_bytes

    def page_offset(self, slot: int) -> int:
        """Where the header page of a slot lies."""
        return HEADER_OFFSET + slot * PAGE_BYTES

    def region(self, file: SlabFile) -> SlabRegion:
        """The payloads, as a mover sees them."""
        return SlabRegion(file, self.payload_offset, self.stride_bytes, self.slots)
