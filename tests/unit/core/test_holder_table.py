"""Sets of holders, and sweeps of retired ones while keys move: nobody gets what another one had."""

import tracemalloc
from collections.abc import Sequence

import pytest

from blockyard.core.events import EventOwner, OwnerKind
from blockyard.core.holder_sets import HolderSets
from blockyard.core.holder_table import Holder, HolderTable
from blockyard.core.vocabulary import ContentKey, GroupId, TenantDigest, Tier

PAGE = 4
GROUP, OTHER = GroupId(0), GroupId(1)
TENANT = TenantDigest(b"t" * 16)


def chain(name: int, blocks: int) -> list[ContentKey]:
    return [ContentKey(name.to_bytes(8, "big") + place.to_bytes(8, "big")) for place in range(blocks)]


class Filled:
    """Page 0 is of one that stays; in each of the others the first key is of one that leaves, too."""

    pages = 7

    def __init__(self, group: GroupId) -> None:
        self.table = HolderTable(PAGE)
        self.group = group
        self.leaves, self.stays = self.holder("leaves"), self.holder("stays")
        if group != GROUP:
            self.add(self.stays, chain(9, PAGE), GROUP)
        self.keys = chain(1, PAGE * self.pages)
        self.shared = self.keys[PAGE::PAGE]
        for begin in range(0, len(self.keys), PAGE):
            first, others = self.keys[begin : begin + 1], self.keys[begin + 1 : begin + PAGE]
            self.add(self.leaves if begin else self.stays, first)
            self.add(self.stays, others)
        self.others = [key for key in self.keys[PAGE:] if key not in self.shared]

    def holder(self, name: str) -> Holder:
        return self.table.holder(name, EventOwner(OwnerKind.NODE, name), Tier.G2)

    def add(self, holder: Holder, keys: Sequence[ContentKey], group: GroupId | None = None) -> None:
        self.table.add(holder, self.group if group is None else group, TENANT, keys, 1_000)

    def held(self, holder: Holder, keys: Sequence[ContentKey]) -> list[ContentKey]:
        found = [(key, cell) for key in keys for cell, _ in self.table.runs(self.group, [key])]
        return [key for key, cell in found if cell.mask & holder.bit]

    def sweep(self, pages: int) -> None:
        for _ in range(pages):
            self.table.sweep(1)


@pytest.mark.parametrize("group", [GROUP, OTHER])
@pytest.mark.parametrize("swept", [1, 2, 3])
def test_bit_of_a_retired_holder_leaves_keys_that_move_behind_a_sweep(group: GroupId, swept: int) -> None:
    filled = Filled(group)
    table = filled.table
    table.retire(filled.leaves)
    filled.sweep(swept)
    gone = filled.others[-13:]

    table.remove(filled.stays, group, gone)
    while not table.is_swept:
        filled.sweep(1)

    newcomer = filled.holder("newcomer")
    assert newcomer.bit == filled.leaves.bit
    assert filled.held(newcomer, filled.keys) == []
    kept = [key for key in filled.keys if key not in gone and key not in filled.shared]
    assert filled.held(filled.stays, filled.keys) == kept
    assert table.blocks == len(kept) + (PAGE if group == OTHER else 0)


def test_newcomer_keeps_its_keys_when_pages_are_emptied_after_the_sweep_that_freed_its_bit() -> None:
    filled = Filled(GROUP)
    filled.table.retire(filled.leaves)
    filled.sweep(2 * filled.pages)
    newcomer = filled.holder("newcomer")
    assert newcomer.bit == filled.leaves.bit
    filled.add(newcomer, filled.others)

    kept = filled.others[2::3]

    for holder in (filled.stays, newcomer):
        filled.table.remove(holder, GROUP, [key for key in filled.others if key not in kept])

    assert filled.held(newcomer, filled.keys) == kept


@pytest.mark.parametrize("retires", [False, True])
def test_rows_of_keys_that_left_do_not_stay_where_one_of_each_chain_does(retires: bool) -> None:
    table = HolderTable(page=64)
    stays, leaves = (table.holder(name, EventOwner(OwnerKind.NODE, name), Tier.G2) for name in ("stays", "leaves"))
    tracemalloc.start()
    try:
        for name in range(400):
            keys = chain(name, 64)
            table.add(leaves, GROUP, TENANT, keys, 1_000)
            table.add(stays, GROUP, TENANT, keys[:1], 1_000)
            if not retires:
                table.remove(leaves, GROUP, keys[1:])
            elif not name % 20:
                table.retire(leaves)
                table.sweep(100_000)
                leaves = table.holder("leaves", leaves.owner, Tier.G2)
        table.retire(leaves)
        table.sweep(100_000)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert table.blocks == 400
    assert kept < 400 * 400, "a row for each that left would be more than a kilobyte for each that stays"


def test_set_counts_the_keys_that_have_it() -> None:
    table = HolderTable(PAGE)
    first, second = (table.holder(name, EventOwner(OwnerKind.NODE, name), Tier.G2) for name in ("first", "second"))
    keys = chain(1, 6)
    table.add(first, GROUP, TENANT, keys, 1_000)
    table.add(second, GROUP, TENANT, keys[:2], 1_000)
    table.add(second, GROUP, TENANT, keys[1:4], 1_000)
    table.remove(first, GROUP, keys[3:5])

    counts = [(cell.mask, cell.keys, length) for cell, length in table.runs(GROUP, keys[:4])]
    assert counts == [(3, 3, 3), (2, 1, 1)]
    assert [cell.keys for cell, _ in table.runs(GROUP, keys[5:])] == [1]


def test_number_of_a_set_without_keys_is_given_to_one_other() -> None:
    sets = HolderSets()
    number = sets.gain(1, TENANT, 3)
    assert sets.gain(1, TENANT, 1) == number
    sets.lose(sets.cell(number), 3)
    assert sets.gain(1, TENANT, 2) == number
    sets.lose(sets.cell(number), 3)

    second, third = sets.gain(2, TENANT, 1), sets.gain(4, TENANT, 1)

    assert second == number
    assert third != number
    assert (sets.cell(second).mask, sets.cell(third).mask) == (2, 4)
