"""Who may be given a request, and which holders each of them reads from.

A *reader* is an engine of a node whose lease lives. It reads its own G1, G2 and G3 of its node, and G4 as any credited
node knows it. Without credit neither the engines of a node nor its blocks are in any answer.

A plane is a mask of readers: those who find a block in a certain tier or a faster one. The four planes of a set of
holders are kept with its cell until anything about readers or holders changes, so most lookups read them as they are.
Readers are numbered anew at the first question after a change: thousands of leases that come or go together cost one
numbering.
Invariants: nothing of a publisher without credit is in a plane; a plane contains the planes of the faster tiers.
Threading: the owner thread of the index.
"""

from collections.abc import Sequence
from typing import Final, final

from blockyard.core.events import EventOwner, OwnerKind
from blockyard.core.holder_sets import Cell
from blockyard.core.holder_table import Holder, HolderTable
from blockyard.core.tier_digest import place_of

Planes = tuple[int, int, int, int]
"""Masks of readers, by tier from G1; each contains the one before."""
NO_PLANES: Final[Planes] = (0, 0, 0, 0)
_MOST_DECODED: Final = 4_096


@final
class ReaderBoard:
    """Readers by publisher."""

    __slots__ = ("_credited", "_decoded", "_everybody", "_is_numbered", "_numbers", "_of", "_readers", "_stamp")

    def __init__(self) -> None:
        """Start without credit for anybody."""
        self._credited: dict[str, tuple[EventOwner, ...]] = {}
        self._stamp = 0
        self._number()

    @property
    def everybody(self) -> int:
        """Mask of all readers."""
        if not self._is_numbered:
            self._number()
        return self._everybody

    def credit(self, instance: str, readers: Sequence[EventOwner]) -> None:
        """``instance`` has a live lease, with these engines in it; replaces what was said before."""
        wanted = tuple(readers)
        if self._credited.get(instance) != wanted:
            self._credited[instance] = wanted
            self.changed()

    def discredit(self, instance: str) -> None:
        """``instance`` has no live lease; no error where it had none."""
        if self._credited.pop(instance, None) is not None:
            self.changed()

    def changed(self) -> None:
        """Forget what was found out of cells: readers changed, or a holder was retired."""
        self._is_numbered = False

    def planes(self, table: HolderTable, cell: Cell) -> Planes:
        """Who reads what these holders have, by tier."""
        if not self._is_numbered:
            self._number()
        if cell.stamp != self._stamp:
            planes = [0, 0, 0, 0]
            for holder in table.in_mask(cell.mask):
                planes[place_of(holder.tier)] |= self._readers_of(holder)
            first, second, third, fourth = planes
            second |= first
            third |= second
            cell.planes = (first, second, third, third | fourth)
            cell.stamp = self._stamp
        return cell.planes

    def readers_in(self, mask: int) -> tuple[EventOwner, ...]:
        """The readers of a mask, which is of now: none changed since it was given out."""
        found = self._decoded.get(mask)
        if found is None:
            if len(self._decoded) >= _MOST_DECODED:
                self._decoded.clear()
            found = tuple(reader for number, reader in enumerate(self._readers) if mask >> number & 1)
            self._decoded[mask] = found
        return found

    def _number(self) -> None:
        self._is_numbered = True
        self._stamp += 1
        self._readers = list(dict.fromkeys(reader for readers in self._credited.values() for reader in readers))
        self._numbers = {reader: number for number, reader in enumerate(self._readers)}
        self._of = {name: self._mask(readers) for name, readers in self._credited.items()}
        self._everybody = (1 << len(self._readers)) - 1
        self._decoded: dict[int, tuple[EventOwner, ...]] = {}

    def _readers_of(self, holder: Holder) -> int:
        if holder.instance not in self._of:
            return 0
        if holder.owner.kind is OwnerKind.SHARED:
            return self._everybody
        of_node = self._of[holder.instance]
        if holder.owner.kind is OwnerKind.NODE:
            return of_node
        number = self._numbers.get(holder.owner)
        return 0 if number is None else of_node & (1 << number)

    def _mask(self, readers: Sequence[EventOwner]) -> int:
        return sum(1 << self._numbers[reader] for reader in set(readers))
