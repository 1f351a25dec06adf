"""Inventories as bytes: columns and parts of them agree with the records."""

import numpy as np
import pytest

from blockyard.core.errors import MalformedFrameError
from blockyard.core.vocabulary import BlockId, ChainDigest, ContentKey, Generation, IdentityDigest
from blockyard.tiers.header import NO_FILE, HeaderState, SlotHeader, inventory_record, pack_header, parse_inventory
from blockyard.tiers.inventory_pages import InventoryPages, parts

HEADERS = [
    SlotHeader(
        state=HeaderState.FREE if slot == 2 else HeaderState.READY,
        slot=BlockId(slot),
        generation=Generation(2**40 + slot),
        file_id=NO_FILE,
        identity=IdentityDigest(b"i" * 32),
        digest=ChainDigest(bytes([slot]) * 16 + bytes(16)),
        parent=ContentKey(bytes(16)),
        position=position,
        payload_bytes=4_096,
        checksum=bytes(16),
    )
    for slot, position in ((7, 3), (2, 0), (9, 2**32 - 1), (4, 3), (5, 1))
]
PAGES = [b"".join(inventory_record(pack_header(header)) for header in part) for part in (HEADERS[:3], HEADERS[3:])]


@pytest.fixture
def pages() -> InventoryPages:
    made = InventoryPages()
    for page in PAGES:
        made.add(page)
    return made


def test_columns_are_those_of_the_records(pages: InventoryPages) -> None:
    records = [record for page in PAGES for record in parse_inventory(page)]
    rows = np.arange(len(pages))
    assert pages.records(rows) == records
    assert pages.slots.tolist() == [record.block for record in records]
    assert pages.generations.tolist() == [record.generation for record in records]
    assert pages.ready.tolist() == [record.state is HeaderState.READY for record in records]
    assert pages.keys(rows) == [record.key for record in records]


def test_deep_blocks_come_first_and_equals_keep_their_order(pages: InventoryPages) -> None:
    rows = pages.deepest_first(np.array([0, 1, 2, 3]))
    assert [record.block for record in pages.records(rows)] == [9, 7, 4, 2]


def test_parts_hold_everything_once() -> None:
    assert [part.tolist() for part in parts(np.arange(5), 2)] == [[0, 1], [2, 3], [4]]
    assert list(parts(np.arange(0), 2)) == []


def test_without_records_everything_is_empty() -> None:
    pages = InventoryPages()
    pages.add(b"")
    assert len(pages) == 0
    assert pages.records(np.flatnonzero(pages.ready)) == []


def test_a_page_that_is_none_is_refused_and_leaves_the_others(pages: InventoryPages) -> None:
    with pytest.raises(MalformedFrameError):
        pages.add(PAGES[0][:-1])
    assert len(pages) == 5
