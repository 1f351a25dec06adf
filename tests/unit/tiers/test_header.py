"""The slot header: its bytes, and what makes a record a block."""

from dataclasses import replace

import pytest

from blockyard.core.errors import CorruptBlockError, MalformedFrameError
from blockyard.core.vocabulary import BlockId, Epoch, Generation, GroupId, JobSeq, TenantDigest, key_of
from blockyard.testing.byte_patterns import digest_of, header_of, pattern
from blockyard.tiers.checksum import record_checksum
from blockyard.tiers.header import (
    HEADER_BYTES,
    INVENTORY_BYTES,
    HeaderState,
    HeaderVerdict,
    SlotHeader,
    check_record,
    inventory_record,
    pack_header,
    parse_inventory,
    read_record,
    unpack_header,
    with_state,
)

FILE = b"f" * 16
HEADER = replace(
    header_of(5, pattern(5, 8192), file_id=FILE, slot=7, generation=0x1234, parent=key_of(digest_of(4)), position=9),
    bm_epoch=Epoch(11),
    worker_epoch=Epoch(12),
    job_seq=JobSeq(13),
    tenant=TenantDigest(b"t" * 16),
    group=GroupId(2),
    shard=1,
    shards=4,
)
RECORD = pack_header(HEADER)


def verdict(record: bytes, *, file_id: bytes = FILE, slot: int = 7, limit: int = 8192) -> HeaderVerdict:
    return check_record(record, file_id=file_id, slot=slot, max_payload_bytes=limit)


def changed(at: int, value: bytes, *, seal: bool = False) -> bytes:
    record = bytearray(RECORD)
    record[at : at + len(value)] = value
    if seal:
        record[240:248] = record_checksum(bytes(record[:8]), bytes(record[16:240])).to_bytes(8, "little")
    return bytes(record)


def test_what_was_packed_is_unpacked() -> None:
    assert len(RECORD) == HEADER_BYTES
    assert unpack_header(RECORD) == HEADER
    assert HEADER.key == digest_of(5)[:16]


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (0, b"BYSLOT01"),
        (8, (0x1234 << 8 | 3).to_bytes(8, "little")),
        (16, (11).to_bytes(8, "little")),
        (24, (12).to_bytes(8, "little")),
        (32, (13).to_bytes(8, "little")),
        (40, FILE),
        (56, (7).to_bytes(4, "little")),
        (60, (1 << 8).to_bytes(4, "little")),
        (64, HEADER.identity),
        (96, HEADER.digest[:16]),
        (112, HEADER.parent),
        (128, (9).to_bytes(4, "little")),
        (132, (8192).to_bytes(4, "little")),
        (136, HEADER.checksum),
        (152, bytes(32)),
        (184, b"\2\0\1\0\4\0\0\0"),
        (192, HEADER.digest),
        (224, b"t" * 16),
        (248, (0x1234 << 8 | 3).to_bytes(8, "little")),
    ],
)
def test_every_field_lies_at_its_place(offset: int, value: bytes) -> None:
    assert RECORD[offset : offset + len(value)] == value


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (RECORD, HeaderVerdict.READY),
        (bytes(HEADER_BYTES), HeaderVerdict.EMPTY),
        (changed(0, b"X"), HeaderVerdict.NO_MAGIC),
        (changed(8, b"\x09"), HeaderVerdict.UNKNOWN_STATE),
        (changed(8, b"\x02"), HeaderVerdict.WRITING),
        (changed(9, b"\xff"), HeaderVerdict.TORN),
        (changed(64, b"\0"), HeaderVerdict.CHECKSUM),
        (changed(239, b"\0"), HeaderVerdict.CHECKSUM),
        (changed(240, b"\0\0"), HeaderVerdict.CHECKSUM),
        (changed(60, b"\1", seal=True), HeaderVerdict.SEALED),
        (changed(61, b"\2", seal=True), HeaderVerdict.SEALED),
        (changed(132, b"\1\x20", seal=True), HeaderVerdict.TOO_LONG),
        (with_state(RECORD, 5, HeaderState.FREE), HeaderVerdict.FREE),
        (with_state(RECORD, 5, HeaderState.BAD), HeaderVerdict.BAD),
        (with_state(bytes(HEADER_BYTES), 5, HeaderState.FREE), HeaderVerdict.FREE),
    ],
)
def test_only_a_record_that_is_right_in_everything_is_a_block(record: bytes, expected: HeaderVerdict) -> None:
    assert verdict(record) is expected
    assert expected.is_block == (expected is HeaderVerdict.READY)


def test_a_record_of_another_place_is_no_block() -> None:
    assert verdict(RECORD, file_id=b"g" * 16) is HeaderVerdict.OTHER_FILE
    assert verdict(RECORD, slot=8) is HeaderVerdict.OTHER_SLOT
    assert verdict(RECORD, limit=8191) is HeaderVerdict.TOO_LONG


def test_no_flipped_bit_goes_unnoticed() -> None:
    for at in range(HEADER_BYTES):
        assert not verdict(changed(at, bytes([RECORD[at] ^ 0x10]))).is_block


def test_changing_the_state_keeps_the_record_valid() -> None:
    freed = with_state(RECORD, 0x1234, HeaderState.FREE)
    assert with_state(freed, 0x1234, HeaderState.READY) == RECORD


def test_a_reading_tells_the_generation_but_decodes_no_damage() -> None:
    reading = read_record(changed(64, b"\0"), file_id=FILE, slot=7, max_payload_bytes=8192)
    assert (reading.verdict, reading.generation) == (HeaderVerdict.CHECKSUM, 0x1234)
    with pytest.raises(CorruptBlockError):
        _ = reading.header
    whole: SlotHeader = read_record(RECORD, file_id=FILE, slot=7, max_payload_bytes=8192).header
    assert whole == HEADER


@pytest.mark.parametrize("state", [state for state in HeaderState if state is not HeaderState.READY])
def test_a_record_without_a_block_is_not_decoded(state: HeaderState) -> None:
    """Its body was not compared with anything: it may hold values that no field can have."""
    record = with_state(changed(61, b"\x09"), 5, state)
    with pytest.raises(CorruptBlockError):
        _ = read_record(record, file_id=FILE, slot=7, max_payload_bytes=8192).header


def test_an_inventory_carries_what_a_table_needs() -> None:
    other = pack_header(replace(HEADER, slot=BlockId(8), state=HeaderState.FREE, generation=Generation(77)))
    page = inventory_record(RECORD) + inventory_record(other)
    assert len(page) == 2 * INVENTORY_BYTES
    assert page[:INVENTORY_BYTES] == RECORD[8:136] + RECORD[184:240]
    first, second = parse_inventory(page)
    assert (first.state, first.block, first.generation, first.key) == (HeaderState.READY, 7, 0x1234, HEADER.key)
    assert (first.identity, first.parent, first.position) == (HEADER.identity, HEADER.parent, 9)
    assert (first.tenant, first.bm_epoch, first.payload_bytes) == (HEADER.tenant, 11, 8192)
    assert (first.worker_epoch, first.job_seq, first.file_id) == (12, 13, FILE)
    assert (first.digest, first.group, first.shard, first.shards) == (HEADER.digest, 2, 1, 4)
    assert (second.state, second.block, second.generation) == (HeaderState.FREE, 8, 77)


@pytest.mark.parametrize("page", [b"x" * (INVENTORY_BYTES - 1), inventory_record(RECORD) + b"x"])
def test_a_cut_inventory_is_refused(page: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        parse_inventory(page)


def test_an_inventory_with_an_unknown_state_is_refused() -> None:
    with pytest.raises(MalformedFrameError):
        parse_inventory(b"\xff" + inventory_record(RECORD)[1:])
