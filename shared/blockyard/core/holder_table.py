"""Who holds which blocks of one model identity: content key to the set of its holders.

A *holder* is one publisher's word that one owner has blocks in one tier; it has a bit. ::

    keys of a group ──► row ──► number ──► Cell(mask of holders, tenant) ──► planes: who reads it from which tier
    (``core.holder_rows``)           (``core.holder_sets``)                  (``core.reader_board``)

A holder is retired at once, whatever it holds: its bit counts no more. Its keys are taken away later, a few with each
further call, and then the bit is given to another. A page that is emptied meanwhile is swept first, as its keys may
move to where the sweep has been.
Invariants: a key is in a table exactly while its mask is not zero; ``digest`` of a holder is that of its keys; the bit
of a retired holder is not given away before it was swept. A content key has one tenant, since its scope is hashed into
it; should publishers say different ones, the first counts, so that none can spoil what another clears.
Threading: the owner thread of the index.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, final

from blockyard.core.events import EventOwner
from blockyard.core.holder_rows import HolderRows, Span
from blockyard.core.holder_sets import Cell, HolderSets
from blockyard.core.tier_digest import TierDigest
from blockyard.core.vocabulary import ContentKey, GroupId, TenantDigest, Tier


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

    __slots__ = ("_free", "_groups", "_holders", "_named", "_page", "_retired", "_sets", "_sweep", "_swept_bits")

    def __init__(self, page: int) -> None:
        """Start with nothing; so many rows lie in a page, which is swept at once."""
        self._page = page
        self._groups: dict[GroupId, HolderRows] = {}
        self._sets = HolderSets()
        self._holders: list[Holder | None] = []
        self._named: dict[str, dict[tuple[EventOwner, Tier], Holder]] = {}
        """By publisher; no publisher without holders."""
        self._free: list[int] = []
        self._retired: list[Holder] = []
        self._sweep: Iterator[int] | None = None
        self._swept_bits = 0
        """Of the holders whose keys are being taken away."""

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

    def runs(self, group: GroupId, keys: Sequence[ContentKey]) -> Iterator[tuple[Cell, int]]:
        """Leading keys that somebody holds: sets of holders, each with how many keys in a row have it."""
        rows = self._groups.get(group)
        number = length = 0
        for piece in rows.pieces(keys) if rows is not None else ():
            for next_number, more in piece.sets:
                if next_number != number and length:
                    yield self._sets.cell(number), length
                    length = 0
                number = next_number
                if not number:
                    return
                length += more
        if length:
            yield self._sets.cell(number), length

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
        self, holder: Holder, group: GroupId, tenant: TenantDigest, keys: Sequence[ContentKey], room: int
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
        rows = self._groups.get(group)
        if rows is None:
            rows = self._groups[group] = HolderRows(self._page)
        wanted = keys if len(set(keys)) == len(keys) else tuple(dict.fromkeys(keys))
        new, fresh = (wanted, ()) if rows.knows_none(wanted) else self._share(rows, holder, wanted)
        refused = max(len(new) - room, 0)
        if taken := new[: len(new) - refused] if refused else new:
            number = self._sets.gain(holder.bit, tenant, len(taken))
            rows.append(taken, array("I", (number,)) * len(taken))
        grown = TierDigest.of((*fresh, *taken) if fresh else taken)
        holder.digest = holder.digest.joined(grown)
        return grown, refused

    def _share(
        self, rows: HolderRows, holder: Holder, wanted: Sequence[ContentKey]
    ) -> tuple[Sequence[ContentKey], Sequence[ContentKey]]:
        """Give ``holder`` those that are known; answers those that are not, and those that it did not have before."""
        new: list[ContentKey] = []
        fresh: list[ContentKey] = []
        for span, keys in _placed(rows, wanted):
            cell = self._sets.cell(span.number)
            if not cell.mask:
                new += keys
            elif not cell.mask & holder.bit:
                fresh += keys
                rows.renumber(span.row, span.length, self._sets.gain(cell.mask | holder.bit, cell.tenant, span.length))
                self._sets.lose(cell, span.length)
        return new, fresh

    def remove(self, holder: Holder, group: GroupId, keys: Iterable[ContentKey]) -> TierDigest:
        """Note that ``holder`` has these no more; answers what it had of them."""
        rows = self._groups.get(group)
        if rows is None:
            return TierDigest()
        gone: list[ContentKey] = []
        for span, part in _placed(rows, list(dict.fromkeys(keys))):
            if self._sets.cell(span.number).mask & holder.bit:
                gone += part
                self._take(rows, span, part, holder.bit)
        return self._gave_up(rows, holder, gone)

    def remove_tenant(self, holder: Holder, tenant: TenantDigest) -> TierDigest:
        """Note that ``holder`` has nothing of a tenant any more; looks at every key of the identity."""
        had = TierDigest()
        for rows in self._groups.values():
            gone: list[ContentKey] = []
            for page in range(rows.pages):
                for span in rows.in_page(page):
                    cell = self._sets.cell(span.number)
                    if cell.tenant == tenant and cell.mask & holder.bit:
                        part = rows.keys(span.row, span.length)
                        gone += part
                        self._take(rows, span, part, holder.bit)
            had = had.joined(self._gave_up(rows, holder, gone))
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
        self._swept_bits = sum(holder.bit for holder in targets)
        for group, rows in list(self._groups.items()):
            for page in range(rows.pages):
                self._strip(rows, page)
                self._tidy(rows)
                yield self._page
            if not len(rows):
                del self._groups[group]
        self._swept_bits = 0
        for holder in targets:
            number = holder.bit.bit_length() - 1
            self._holders[number] = None
            self._free.append(number)

    def _strip(self, rows: HolderRows, page: int) -> None:
        """Take away what retired holders have in a page."""
        for span in rows.in_page(page):
            if self._sets.cell(span.number).mask & self._swept_bits:
                self._take(rows, span, rows.keys(span.row, span.length), self._swept_bits)

    def _tidy(self, rows: HolderRows) -> None:
        while (page := rows.sparsest()) is not None:
            self._strip(rows, page)
            rows.empty(page)

    def _gave_up(self, rows: HolderRows, holder: Holder, gone: list[ContentKey]) -> TierDigest:
        """These were taken from ``holder``."""
        self._tidy(rows)
        had = TierDigest.of(gone)
        holder.digest = holder.digest.without(had)
        return had

    def _take(self, rows: HolderRows, span: Span, keys: Sequence[ContentKey], bits: int) -> None:
        """Take these bits from adjacent keys; without another one they leave the table."""
        cell = self._sets.cell(span.number)
        if left := cell.mask & ~bits:
            rows.renumber(span.row, span.length, self._sets.gain(left, cell.tenant, span.length))
        else:
            rows.leave(span.row, keys)
        self._sets.lose(cell, span.length)


def _placed(rows: HolderRows, keys: Sequence[ContentKey]) -> Iterator[tuple[Span, Sequence[ContentKey]]]:
    """Where these keys are, as of now; they may be changed meanwhile."""
    done = 0
    for span in list(rows.spans(keys)):
        yield span, keys[done : done + span.length]
        done += span.length
