"""The inventory of one tier as it came, page by page, decoded in parts.

A tier may have millions of slots: as objects they would take a gigabyte and the event loop's time all at once. Here
they stay bytes; a few columns are looked at as arrays, and records are made for the part that is worked on.
Threading: one owner.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from blockyard.core.vocabulary import KEY_BYTES, ContentKey
from blockyard.tiers.header import INVENTORY_BYTES, HeaderState, InventoryRecord, parse_inventory

Rows = npt.NDArray[np.intp]
"""Numbers of records, in order of arrival."""

_COLUMNS: Final = np.dtype(
    {
        "names": ["control", "slot", "position", "key"],
        "formats": ["<u8", "<u4", "<u4", f"V{KEY_BYTES}"],
        "offsets": [0, 48, 120, 136],
        "itemsize": INVENTORY_BYTES,
    }
)


class InventoryPages:
    """Records of one tier."""

    def __init__(self) -> None:
        """Start without records."""
        self._data = bytearray()

    def __len__(self) -> int:
        """Number of records."""
        return len(self._data) // INVENTORY_BYTES

    def add(self, records: bytes) -> None:
        """Take a page.

        Raises:
            MalformedFrameError: it holds no whole number of records, or an unknown state; nothing was taken.
        """
        parse_inventory(records)
        self._data += records

    @property
    def slots(self) -> npt.NDArray[np.int64]:
        """Slot of each record."""
        return self._columns["slot"].astype(np.int64)

    @property
    def generations(self) -> npt.NDArray[np.uint64]:
        """Generation of each record."""
        return self._columns["control"] >> np.uint64(8)

    @property
    def ready(self) -> npt.NDArray[np.bool_]:
        """Whether each record names a block."""
        ready: npt.NDArray[np.bool_] = (self._columns["control"] & np.uint64(0xFF)) == np.uint64(HeaderState.READY)
        return ready

    def keys(self, rows: Rows) -> list[ContentKey]:
        """Content keys of these records: of each the first half of its chain digest."""
        keys: list[ContentKey] = self._columns["key"][rows].tolist()
        return keys

    def deepest_first(self, rows: Rows) -> Rows:
        """The same records, those of high positions in their chain before those of low ones."""
        return rows[np.argsort(-self._columns["position"][rows].astype(np.int64), kind="stable")]

    def records(self, rows: Rows) -> list[InventoryRecord]:
        """Decode these records."""
        whole = np.frombuffer(self._data, dtype=np.dtype((np.void, INVENTORY_BYTES)))
        return list(parse_inventory(whole[rows].tobytes()))

    @property
    def _columns(self) -> npt.NDArray[np.void]:
        # Nobody keeps this view: while one is alive no further page can be added.
        return np.frombuffer(self._data, dtype=_COLUMNS)


def parts(rows: Rows, size: int) -> Iterator[Rows]:
    """Cut ``rows`` into parts of at most ``size``."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
