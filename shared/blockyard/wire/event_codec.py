"""KV events to bytes and back: the columns of ``core.events`` packed into the messages of ``wire.events``.

Invariants: decoding gives back an equal event or raises ``MalformedFrameError``; columns of different lengths, unknown
tags and impossible tiers are malformed. Fields that this version does not know are ignored.
Threading: pure functions.
"""

from typing import Final

from blockyard.core.errors import MalformedFrameError, RequestError, UnsupportedVersionError
from blockyard.core.events import (
    BlockColumns,
    BlockScope,
    ClearedEvent,
    EventOwner,
    KvEvent,
    OffloadedEvent,
    PublishedEvent,
    RemovedEvent,
    StoredEvent,
    unpacked_keys,
)
from blockyard.core.vocabulary import (
    DIGEST_BYTES,
    KEY_BYTES,
    ContentKey,
    Epoch,
    EventSeq,
    GroupId,
    IdentityDigest,
    TenantDigest,
    Tier,
)
from blockyard.wire.codec import PROTOCOL_VERSION, BoundedDecoder, encode
from blockyard.wire.events import Cleared, Event, EventMessage, Offloaded, Owner, Removed, Stored

MAX_EVENT_BYTES: Final = 1 << 20
_TENANT_BYTES: Final = 16
_decoder: Final[BoundedDecoder[EventMessage]] = BoundedDecoder(EventMessage, MAX_EVENT_BYTES)


def message_id(instance: str, epoch: Epoch, seq: EventSeq) -> str:
    """Name under which the bus recognises a repeated publish."""
    return f"{instance}:{epoch}:{seq}"


def encode_event(instance: str, epoch: Epoch, seq: EventSeq, event: KvEvent) -> bytes:
    """Bytes of one event message."""
    return encode(
        EventMessage(version=PROTOCOL_VERSION, instance=instance, epoch=epoch, seq=seq, event=_to_wire(event))
    )


def decode_event(data: bytes) -> PublishedEvent:
    """Event of one message.

    Raises:
        FrameTooLargeError: longer than any event.
        MalformedFrameError: not an event.
        UnsupportedVersionError: of another protocol version.
    """
    message = _decoder.decode(data)
    if message.version != PROTOCOL_VERSION:
        raise UnsupportedVersionError(theirs=message.version, ours=PROTOCOL_VERSION)
    if message.epoch < 1 or message.seq < 1:
        raise MalformedFrameError("epochs and sequence numbers count from 1", epoch=message.epoch, seq=message.seq)
    try:
        event = _from_wire(message.event)
    except ValueError as error:
        raise MalformedFrameError(str(error)) from error
    except MalformedFrameError:
        raise
    except RequestError as error:
        raise MalformedFrameError(error.detail, **error.fields) from error
    return PublishedEvent(message.instance, Epoch(message.epoch), EventSeq(message.seq), event)


# --- to the wire --------------------------------------------------------------------------------------------------
def _to_wire(event: KvEvent) -> Event:
    if isinstance(event, StoredEvent):
        return Stored(
            owner=_owner(event.owner),
            tier=event.tier,
            identity=event.scope.identity,
            tenant=event.scope.tenant,
            group=event.scope.group,
            block_tokens=event.scope.block_tokens,
            keys=event.blocks.packed_keys,
            parents=event.blocks.packed_parents,
            positions=event.blocks.packed_positions,
        )
    if isinstance(event, OffloadedEvent):
        return Offloaded(
            owner=_owner(event.owner),
            from_tier=event.from_tier,
            to_tier=event.to_tier,
            identity=event.scope.identity,
            tenant=event.scope.tenant,
            group=event.scope.group,
            block_tokens=event.scope.block_tokens,
            keys=event.blocks.packed_keys,
            parents=event.blocks.packed_parents,
            positions=event.blocks.packed_positions,
        )
    if isinstance(event, RemovedEvent):
        return Removed(
            owner=_owner(event.owner),
            tier=event.tier,
            identity=event.identity,
            group=event.group,
            keys=b"".join(event.keys),
        )
    return Cleared(
        owner=None if event.owner is None else _owner(event.owner),
        tier=0 if event.tier is None else event.tier,
        identity=event.identity or b"",
        tenant=event.tenant or b"",
    )


def _owner(owner: EventOwner) -> Owner:
    return Owner(kind=owner.kind, name=owner.name, dp_rank=owner.dp_rank)


# --- from the wire ------------------------------------------------------------------------------------------------
def _from_wire(event: Event) -> KvEvent:
    if isinstance(event, Stored):
        return StoredEvent(_core_owner(event.owner), Tier(event.tier), _scope(event), _columns(event))
    if isinstance(event, Offloaded):
        return OffloadedEvent(
            _core_owner(event.owner), Tier(event.from_tier), Tier(event.to_tier), _scope(event), _columns(event)
        )
    if isinstance(event, Removed):
        return RemovedEvent(
            _core_owner(event.owner),
            Tier(event.tier),
            IdentityDigest(_sized(event.identity, DIGEST_BYTES)),
            _keys(event.keys),
            GroupId(event.group),
        )
    return ClearedEvent(
        None if event.owner is None else _core_owner(event.owner),
        Tier(event.tier) if event.tier else None,
        IdentityDigest(_sized(event.identity, DIGEST_BYTES)) if event.identity else None,
        TenantDigest(_sized(event.tenant, _TENANT_BYTES)) if event.tenant else None,
    )


def _core_owner(owner: Owner) -> EventOwner:
    return EventOwner(owner.kind, owner.name, owner.dp_rank)


def _scope(event: Stored | Offloaded) -> BlockScope:
    return BlockScope(
        IdentityDigest(_sized(event.identity, DIGEST_BYTES)),
        TenantDigest(_sized(event.tenant, _TENANT_BYTES)),
        GroupId(event.group),
        event.block_tokens,
    )


def _columns(event: Stored | Offloaded) -> BlockColumns:
    return BlockColumns(event.keys, event.parents, event.positions)


def _keys(column: bytes) -> tuple[ContentKey, ...]:
    if len(column) % KEY_BYTES:
        raise MalformedFrameError("keys are not a whole number of 16-byte keys", length=len(column))
    return unpacked_keys(column)


def _sized(value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise MalformedFrameError("a digest has the wrong length", length=len(value), expected=size)
    return value
