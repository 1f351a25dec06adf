"""KV events to bytes and back."""

import msgspec
import pytest

from blockyard.core.errors import FrameTooLargeError, MalformedFrameError, RequestError, UnsupportedVersionError
from blockyard.core.events import (
    MAX_EVENT_BLOCKS,
    BlockColumns,
    BlockScope,
    ClearedEvent,
    EventOwner,
    KvEvent,
    OffloadedEvent,
    OwnerKind,
    PublishedEvent,
    RemovedEvent,
    StoredEvent,
)
from blockyard.core.vocabulary import ROOT_KEY, ContentKey, Epoch, EventSeq, GroupId, IdentityDigest, TenantDigest, Tier
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.event_codec import MAX_EVENT_BYTES, decode_event, encode_event, message_id

IDENTITY = IdentityDigest(bytes(range(32)))
TENANT = TenantDigest(b"t" * 16)
NODE = EventOwner(OwnerKind.NODE, "node-a")
SCOPE = BlockScope(IDENTITY, TENANT, GroupId(3), 512)


def key(number: int) -> ContentKey:
    return ContentKey(number.to_bytes(16, "big"))


def columns(count: int) -> BlockColumns:
    keys = tuple(key(number) for number in range(1, count + 1))
    return BlockColumns.of(keys, (ROOT_KEY, *keys)[:count], tuple(range(count)))


EVENTS: tuple[KvEvent, ...] = (
    StoredEvent(EventOwner(OwnerKind.ENGINE, "engine-0", 1), Tier.G1, SCOPE, columns(3)),
    OffloadedEvent(NODE, Tier.G2, Tier.G3, SCOPE, columns(2)),
    RemovedEvent(NODE, Tier.G2, IDENTITY, (key(1), key(2)), GroupId(3)),
    ClearedEvent(),
    ClearedEvent(NODE, Tier.G3, IDENTITY, TENANT),
)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_event_survives_the_wire(event: KvEvent) -> None:
    data = encode_event("node-a", Epoch(7), EventSeq(12), event)

    assert decode_event(data) == PublishedEvent("node-a", Epoch(7), EventSeq(12), event)


def test_message_id_names_the_life_and_the_number() -> None:
    assert message_id("node-a", Epoch(7), EventSeq(12)) == "node-a:7:12"


def change(**fields: object) -> bytes:
    tree = msgspec.msgpack.decode(encode_event("node-a", Epoch(7), EventSeq(12), EVENTS[0]))
    for name, value in fields.items():
        target = tree if name in tree else tree["event"]
        target[name] = value
    return msgspec.msgpack.encode(tree)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1nonsense",
        change(seq=0),
        change(tier=77),
        change(type="renamed"),
        change(identity=b"short"),
        change(tenant=b"short"),
        change(keys=b"x" * 17),
        change(keys=b"x" * 16),
        change(keys=b"", parents=b"", positions=b""),
        change(positions=b"x" * 13),
        change(keys=b"x" * 49),
        change(parents=b"x" * 49),
        change(positions=bytes(16)),
        change(keys=bytes(16) * 2_000, parents=bytes(16) * 2_000, positions=bytes(4) * 2_000),
    ],
)
def test_impossible_messages_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        decode_event(data)


def test_unknown_fields_are_ignored() -> None:
    tree = msgspec.msgpack.decode(encode_event("node-a", Epoch(7), EventSeq(12), EVENTS[0]))
    tree["colour"] = "blue"
    tree["event"]["shape"] = 3

    assert decode_event(msgspec.msgpack.encode(tree)).event == EVENTS[0]


def test_other_protocol_version_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError):
        decode_event(change(version=PROTOCOL_VERSION + 1))


def test_oversized_message_is_refused_before_decoding() -> None:
    with pytest.raises(FrameTooLargeError):
        decode_event(bytes(MAX_EVENT_BYTES + 1))


def test_largest_event_fits_into_a_message() -> None:
    event = StoredEvent(NODE, Tier.G2, SCOPE, columns(MAX_EVENT_BLOCKS))

    assert decode_event(encode_event("node-a", Epoch(7), EventSeq(1), event)).event == event


def test_columns_are_read_as_they_were_given() -> None:
    read = columns(3)

    assert (read.keys, read.parents, read.positions) == (
        (key(1), key(2), key(3)),
        (ROOT_KEY, key(1), key(2)),
        (0, 1, 2),
    )
    assert (read.packed_parents, read.packed_positions) == (bytes(16) + key(1) + key(2), b"\0\0\0\0\1\0\0\0\2\0\0\0")


def test_columns_are_cut_into_events_of_bounded_size() -> None:
    whole = columns(10)
    parts = list(whole.slices(4))

    assert [len(part) for part in parts] == [4, 4, 2]
    assert sum((part.keys for part in parts), ()) == whole.keys
    assert sum((part.parents for part in parts), ()) == whole.parents
    assert sum((part.positions for part in parts), ()) == whole.positions
    assert list(columns(0).slices()) == []


def test_events_without_blocks_or_with_torn_columns_cannot_be_made() -> None:
    with pytest.raises(RequestError):
        StoredEvent(NODE, Tier.G2, SCOPE, columns(0))
    with pytest.raises(RequestError):
        BlockColumns.of((key(1),), (), (0,))
    with pytest.raises(RequestError):
        RemovedEvent(NODE, Tier.G2, IDENTITY, ())
