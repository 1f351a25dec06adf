"""Who holds which blocks of one model identity: content key to the set of its holders.

A *holder* is one publisher's word that one owner has blocks in one tier; it has a bit. Keys with equal holders share a
``Cell``, so a chain that was stored together is a run of the same object, and what readers can make of a set of holders
is found out once per set. ::

    keys of a group ──► Cell(mask of holders, tenant) ──► planes: who reads it from which tier (``core.reader_board``)

A holder is retired at once, whatever it holds: its bit counts no more. Its keys are taken away later, a few with each
further call, and then the bit is given to another.
Invariants: a key is in a table exactly while its mask is not zero; ``digest`` of a holder is that of its keys; the bit
of a retired holder is not given away before it was swept. A content key has one tenant, since its scope is hashed into
it; should publishers say different ones, the first counts, so that none can spoil what another clears.
Threading: the owner thread of the index.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice, repeat
from typing import Final, final
from weakref import WeakValueDictionary

from blockyard.core.events import EventOwner
from blockyard.core.tier_digest import TierDigest
from blockyard.core.vocabulary import ContentKey, GroupId, TenantDigest, Tier

_Keys = dict[ContentKey, "Cell"]


@final
class Cell:
    """One set of holders. ``planes`` belongs to whoever reads the table, and is of its ``stamp``."""

    __slots__ = ("__weakref__", "mask", "planes", "stamp", "tenant")

    def __init__(self, mask: int, tenant: TenantDigest) -> None:
        """Holders by their bits."""
        self.mask: Final = mask
        self.tenant: Final = tenant
        self.stamp = 0
        self.planes = (0, 0, 0, 0)


@final
class Holder:
    """What one publisher says of one owner and tier."""

    __slots__ = ("bit", "digest", "instance", "owner", "retired", "tier")

    def __init__(self, instance: str, owner: EventOwner, tier: Tier, bit: int) -> None:
        """Start with nothing."""
        self.instance: Final = instance
        self.owner: Final = owner
        self.tier: Final = tier
        self.bit: Final = bit
        self.digest = TierDigest()
        self.retired = False


@final
class HolderTable:
    """Blocks of one identity."""

    __slots__ = ("_cells", "_free", "_groups", "_holders", "_named", "_retired", "_sweep", "_sweep_part")

    def __init__(self, sweep_part: int) -> None:
        """Start with nothing; sweep so many keys at a time."""
        self._sweep_part = sweep_part
        self._groups: dict[GroupId, _Keys] = {}
        self._holders: list[Holder | None] = []
        self._named: dict[str, dict[tuple[EventOwner, Tier], Holder]] = {}
        """By publisher; no publisher without holders."""
        self._free: list[int] = []
        self._cells: WeakValueDictionary[tuple[int, TenantDigest], Cell] = WeakValueDictionary()
        self._retired: list[Holder] = []
        self._sweep: Iterator[int] | None = None

    @property
    def blocks(self) -> int:
        """Keys over all groups, those of retired holders included until they are swept."""
        return sum(map(len, self._groups.values()))

    @property
    def has_holders(self) -> bool:
        """Whether one is not retired."""
        return bool(self._named)

    def holders_of(self, instance: str) -> list[Holder]:
        """Those of one publisher that are not retired."""
        return list(self._named.get(instance, {}).values())

    @property
    def is_swept(self) -> bool:
        """True where nothing of retired holders is left."""
        return not self._retired and self._sweep is None

    def keys_of(self, group: GroupId) -> Callable[[ContentKey], Cell | None]:
        """What finds the cell of a key of ``group``, or None."""
        return self._groups.get(group, {}).get

    def in_mask(self, mask: int) -> Iterator[Holder]:
        """The holders of a mask that are not retired."""
        while mask:
            low = mask & -mask
            mask ^= low
            holder = self._holders[low.bit_length() - 1]
            if holder is not None and not holder.retired:
                yield holder

    def find(self, instance: str, owner: EventOwner, tier: Tier) -> Holder | None:
        """The holder of this name, if it has one."""
        return self._named.get(instance, {}).get((owner, tier))

    def holder(self, instance: str, owner: EventOwner, tier: Tier) -> Holder:
        """The holder of this name; a new one where there is none."""
        if (found := self.find(instance, owner, tier)) is not None:
            return found
        number = self._free.pop() if self._free else len(self._holders)
        made = Holder(instance, owner, tier, 1 << number)
        if number == len(self._holders):
            self._holders.append(made)
        else:
            self._holders[number] = made
        self._named.setdefault(instance, {})[owner, tier] = made
        return made

    def add(
        self, holder: Holder, group: GroupId, tenant: TenantDigest, keys: Iterable[ContentKey], room: int
    ) -> tuple[TierDigest, int]:
        """Note that ``holder`` has these; repeating it changes nothing.

        Args:
            holder: not retired.
            group: of all keys.
            tenant: of all keys.
            keys: the first of them are taken where not all find room.
            room: how many keys may be new to the table.

        Returns:
            What the holder did not have before, and how many keys found no room.
        """
        table = self._groups.setdefault(group, {})
        wanted = dict.fromkeys(keys)
        before = list(map(table.get, wanted))
        distinct = set(before)
        refused = 0
        if None in distinct and (new := before.count(None)) > room:
            refused = new - room
            wanted, before = _that_fit(wanted, before, room)
            distinct = set(before)
        fresh: Collection[ContentKey] = wanted
        if any(cell is not None and cell.mask & holder.bit for cell in distinct):
            fresh = [key for key, cell in zip(wanted, before, strict=True) if not cell or not cell.mask & holder.bit]
        after = {
            cell: self._cell(cell.mask | holder.bit, cell.tenant) if cell else self._cell(holder.bit, tenant)
            for cell in distinct
        }
        if len(after) == 1:
            table.update(zip(wanted, repeat(next(iter(after.values())))))
        else:
            table.update(zip(wanted, map(after.__getitem__, before), strict=True))
        grown = TierDigest.of(fresh)
        holder.digest = holder.digest.joined(grown)
        return grown, refused

    def remove(self, holder: Holder, group: GroupId, keys: Iterable[ContentKey]) -> TierDigest:
        """Note that ``holder`` has these no more; answers what it had of them."""
        table = self._groups.get(group, {})
        wanted = dict.fromkeys(keys)
        gone = [
            key for key, cell in zip(wanted, map(table.get, wanted), strict=True) if cell and cell.mask & holder.bit
        ]
        return self._give_up(table, holder, gone)

    def remove_tenant(self, holder: Holder, tenant: TenantDigest) -> TierDigest:
        """Note that ``holder`` has nothing of a tenant any more; looks at every key of the identity."""
        had = TierDigest()
        for table in self._groups.values():
            of_tenant = {cell for cell in self._cells.values() if cell.tenant == tenant and cell.mask & holder.bit}
            gone = [key for key, cell in table.items() if cell in of_tenant] if of_tenant else []
            had = had.joined(self._give_up(table, holder, gone))
        return had

    def retire(self, holder: Holder) -> TierDigest:
        """Everything ``holder`` has is gone; answers what that was. Its keys leave with the next sweeps."""
        holder.retired = True
        siblings = self._named[holder.instance]
        del siblings[holder.owner, holder.tier]
        if not siblings:
            del self._named[holder.instance]
        self._retired.append(holder)
        return holder.digest

    def sweep(self, keys: int) -> None:
        """Take away what retired holders had, looking at about so many keys."""
        while keys > 0 and not self.is_swept:
            if self._sweep is None:
                self._sweep = self._sweeping(tuple(self._retired))
                self._retired = []
            seen = next(self._sweep, None)
            if seen is None:
                self._sweep = None
            else:
                keys -= seen

    def _sweeping(self, targets: tuple[Holder, ...]) -> Iterator[int]:
        bits = sum(holder.bit for holder in targets)
        for group, table in list(self._groups.items()):
            keys = iter(list(table))
            while part := list(islice(keys, self._sweep_part)):
                self._take(table, _held(table, part, bits), bits)
                yield len(part)
            if not table:
                del self._groups[group]
        for holder in targets:
            number = holder.bit.bit_length() - 1
            self._holders[number] = None
            self._free.append(number)

    def _give_up(self, table: _Keys, holder: Holder, keys: list[ContentKey]) -> TierDigest:
        had = TierDigest.of(keys)
        holder.digest = holder.digest.without(had)
        self._take(table, keys, holder.bit)
        return had

    def _take(self, table: _Keys, keys: list[ContentKey], bits: int) -> None:
        """Take these bits from keys of the table; those without another one leave it."""
        before = [table[key] for key in keys]
        after = {cell: self._cell(cell.mask & ~bits, cell.tenant) for cell in set(before) if cell.mask & ~bits}
        if len(after) < len(set(before)):
            dead = [key for key, cell in zip(keys, before, strict=True) if cell not in after]
            deque(map(table.__delitem__, dead), maxlen=0)
        table.update((key, after[cell]) for key, cell in zip(keys, before, strict=True) if cell in after)

    def _cell(self, mask: int, tenant: TenantDigest) -> Cell:
        cell = self._cells.get((mask, tenant))
        if cell is None:
            cell = self._cells[mask, tenant] = Cell(mask, tenant)
        return cell


def _held(table: _Keys, keys: list[ContentKey], bits: int) -> list[ContentKey]:
    """Those of the keys that somebody in ``bits`` has."""
    cells = list(map(table.get, keys))
    theirs = {cell for cell in set(cells) if cell and cell.mask & bits}
    if len(theirs) == 1 and len(set(cells)) == 1:
        return keys
    return [key for key, cell in zip(keys, cells, strict=True) if cell in theirs] if theirs else []


def _that_fit(
    wanted: dict[ContentKey, None], before: list[Cell | None], room: int
) -> tuple[dict[ContentKey, None], list[Cell | None]]:
    """Known keys, and the first ``room`` of the others."""
    kept: dict[ContentKey, None] = {}
    cells: list[Cell | None] = []
    for key, cell in zip(wanted, before, strict=True):
        if cell is None:
            if not room:
                continue
            room -= 1
        kept[key] = None
        cells.append(cell)
    return kept, cells
