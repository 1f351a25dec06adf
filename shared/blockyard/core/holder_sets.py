"""Different sets of holders of one model identity, numbered, so that a row of a key needs a number only.

Keys with equal holders share a ``Cell``: what readers can make of a set of holders is found out once per set.
Invariants: a number is of one set while a key has that set; 0 is of none, and means nobody.
Threading: the owner thread of the index.
"""

from typing import Final, final

from blockyard.core.vocabulary import TenantDigest


@final
class Cell:
    """One set of holders. ``planes`` belongs to whoever reads the table, and is of its ``stamp``."""

    __slots__ = ("keys", "mask", "number", "planes", "stamp", "tenant")

    def __init__(self, number: int, mask: int, tenant: TenantDigest) -> None:
        """Holders by their bits."""
        self.number: Final = number
        self.mask: Final = mask
        self.tenant: Final = tenant
        self.keys = 0
        """How many have this set."""
        self.stamp = 0
        self.planes = (0, 0, 0, 0)


@final
class HolderSets:
    """Cells by their numbers."""

    __slots__ = ("_by_mask", "_cells", "_free")

    def __init__(self) -> None:
        """Start with nothing."""
        self._by_mask: dict[tuple[int, TenantDigest], Cell] = {}
        self._cells: list[Cell] = [Cell(0, 0, TenantDigest(b""))]
        """Those of free numbers have no keys."""
        self._free: list[int] = []

    def cell(self, number: int) -> Cell:
        """The set of this number."""
        return self._cells[number]

    def gain(self, mask: int, tenant: TenantDigest, keys: int) -> int:
        """So many more keys have this set; answers its number."""
        cell = self._by_mask.get((mask, tenant))
        if cell is None:
            cell = Cell(self._free.pop() if self._free else len(self._cells), mask, tenant)
            self._cells[cell.number : cell.number + 1] = [cell]
            self._by_mask[mask, tenant] = cell
        cell.keys += keys
        return cell.number

    def lose(self, cell: Cell, keys: int) -> None:
        """So many keys have this set no more; one without keys gives its number away."""
        cell.keys -= keys
        if not cell.keys:
            del self._by_mask[cell.mask, cell.tenant]
            self._free.append(cell.number)
