"""Keys and headers of packs, and the check of their records."""

import dataclasses
from typing import Any

import pytest

from blockyard.core.errors import CorruptBlockError, ForeignFileError
from blockyard.core.stored_key import stored_key, stored_keys
from blockyard.core.vocabulary import BlockId, Epoch, Generation, GroupId, IdentityDigest, PackId
from blockyard.testing.blocks import IDENTITY, chain
from blockyard.tiers.checksum import record_checksum
from blockyard.tiers.g4_packs import (
    PACK_HEADER_BYTES,
    PackAddress,
    PackHeader,
    RecordFault,
    WantedRecord,
    check_pack_record,
    decode_pack_header,
    parse_key,
)
from blockyard.tiers.header import NO_FILE, SlotHeader, pack_header

RUN = chain("prompt", 4)
ADDRESS = PackAddress.of(bytes(range(16)), 7, IDENTITY, RUN.key(3))
HEADER = PackHeader(
    identity=IDENTITY,
    first_position=8,
    keys=b"".join(RUN.keys()),
    blocks_per_pack=4,
    stride_bytes=4_352,
    writer_epoch=Epoch(11),
    created_ms=1_700_000_000_000,
)
RECORD = SlotHeader(
    generation=Generation(3),
    identity=IDENTITY,
    digest=RUN.digest(1),
    parent=RUN.key(0),
    position=9,
    payload_bytes=4_000,
    checksum=bytes(16),
    slot=BlockId(1),
    file_id=NO_FILE,
)
WANTED = WantedRecord(1, IDENTITY, RUN.digest(1), 9, GroupId(0), 4_000)


def test_a_key_names_everything_that_keeps_packs_apart() -> None:
    name = RUN.key(3).hex()
    assert ADDRESS.key("kv") == f"kv/p1/{bytes(range(16)).hex()}/7/{IDENTITY.hex()[:32]}/{name[:2]}/{name}"


def test_a_key_reads_back() -> None:
    assert parse_key("kv", ADDRESS.key("kv")) == ADDRESS


@pytest.mark.parametrize(
    "key",
    [
        "kv/store.json",
        ADDRESS.key("other"),
        ADDRESS.key("kv") + "/more",
        ADDRESS.key("kv").upper(),
        ADDRESS.key("kv").replace("/7/", "/07/"),
        ADDRESS.key("kv")[:-34] + "00/" + "f" * 32,
    ],
)
def test_a_key_of_something_else_is_foreign(key: str) -> None:
    with pytest.raises(ForeignFileError):
        parse_key("kv", key)


def test_a_header_has_the_published_bytes() -> None:
    data = HEADER.encode()
    assert len(data) == PACK_HEADER_BYTES
    assert data[:16] == b"BYPACK01" + (1).to_bytes(4, "little") + bytes(4)
    assert data[16:64] == RUN.key(3) + IDENTITY
    assert data[64:76] == b"\x08\0\0\0" + b"\x04\0" + b"\x04\0" + (4_352).to_bytes(4, "little")
    assert data[80:96] == (11).to_bytes(8, "little") + (1_700_000_000_000).to_bytes(8, "little")
    assert data[128 : 128 + 64] == HEADER.keys


def test_a_header_reads_back() -> None:
    found = decode_pack_header(HEADER.encode() + b"records follow")
    assert found == HEADER
    assert bytes(found.pack) == bytes(RUN.key(3))
    assert (found.blocks, found.object_bytes) == (4, 4_096 + 4 * 4_352)


def test_a_pack_of_another_group_has_another_name_and_says_whose_rows_it_holds() -> None:
    window = dataclasses.replace(HEADER, group=GroupId(1))
    assert decode_pack_header(window.encode()) == window
    assert window.encode()[76:80] == b"\x01\0\0\0"
    assert window.pack == PackId(stored_key(RUN.key(3), GroupId(1))) != HEADER.pack
    assert window.stored_keys() == stored_keys(RUN, GroupId(1))
    assert window.content_keys() == HEADER.content_keys() == RUN.keys()
    assert not window.same_run(HEADER)


def test_a_header_that_names_another_group_than_its_id_is_refused() -> None:
    data = bytearray(HEADER.encode())
    data[76] = 1
    data[4_088:] = record_checksum(bytes(data[:4_088])).to_bytes(8, "little")
    with pytest.raises(CorruptBlockError, match="the id of a pack"):
        decode_pack_header(data)


@pytest.mark.parametrize("offset", [0, 8, 12, 16, 64, 68, 70, 72, 76, 80, 128, 2_000, 4_088])
def test_any_flipped_byte_of_a_header_is_noticed(offset: int) -> None:
    data = bytearray(HEADER.encode())
    data[offset] ^= 1
    with pytest.raises(CorruptBlockError):
        decode_pack_header(data)


def test_a_short_object_is_no_pack() -> None:
    with pytest.raises(CorruptBlockError):
        decode_pack_header(HEADER.encode()[:-1])


@pytest.mark.parametrize("change", [{"blocks_per_pack": 2}, {"stride_bytes": 100}, {"keys": b""}])
def test_a_header_without_sense_is_no_header(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptBlockError):
        decode_pack_header(dataclasses.replace(HEADER, **change).encode())


def test_the_same_run_by_another_writer_is_the_same_run() -> None:
    assert HEADER.same_run(dataclasses.replace(HEADER, writer_epoch=Epoch(99), created_ms=1))
    assert not HEADER.same_run(dataclasses.replace(HEADER, first_position=12))


def test_the_wanted_record_is_accepted() -> None:
    assert check_pack_record(pack_header(RECORD), WANTED) == RECORD


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"identity": IdentityDigest(bytes(32))}, RecordFault.OTHER_IDENTITY),
        ({"digest": RUN.digest(2)}, RecordFault.OTHER_BLOCK),
        ({"position": 10}, RecordFault.OTHER_BLOCK),
        ({"group": GroupId(1)}, RecordFault.OTHER_BLOCK),
        ({"payload_bytes": 3_999}, RecordFault.OTHER_BLOCK),
        ({"payload_bytes": 4_001}, RecordFault.DAMAGED),
        ({"slot": BlockId(2)}, RecordFault.DAMAGED),
        ({"file_id": bytes([1] * 16)}, RecordFault.DAMAGED),
    ],
)
def test_another_record_is_refused(change: dict[str, Any], fault: RecordFault) -> None:
    other = dataclasses.replace(RECORD, **change)
    assert check_pack_record(pack_header(other), WANTED) is fault


def test_a_damaged_record_is_refused() -> None:
    data = bytearray(pack_header(RECORD))
    data[70] ^= 1
    assert check_pack_record(data, WANTED) is RecordFault.DAMAGED
