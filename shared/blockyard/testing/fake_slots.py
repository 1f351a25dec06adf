"""Slots, engine memory and a shared store as plain values: where fake workers keep bytes.

A payload is the digest it belongs to with a word in front, so a wrong byte anywhere shows as a wrong payload.
Threading: one thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from blockyard.core.pack_plan import PackGeometry
from blockyard.core.stored_key import StoredKey, stored_key
from blockyard.core.vocabulary import (
    ROOT_KEY,
    BlockId,
    ChainDigest,
    ContentKey,
    Generation,
    GroupId,
    IdentityDigest,
    PackId,
    TenantDigest,
    key_of,
)
from blockyard.tiers.header import NO_FILE, HeaderState, SlotHeader, inventory_record, pack_header
from blockyard.tiers.index_value import Locator


def payload_of(digest: bytes) -> bytes:
    """What a block with this digest must hold."""
    return b"bytes of " + digest


def parts_of(payload: bytes, pages: int) -> list[bytes]:
    """The payload of a row as its pages hold it."""
    size = -(-len(payload) // pages)
    return [payload[page * size : (page + 1) * size] for page in range(pages)]


@dataclass(slots=True)
class FakeSlot:
    """One slot: its header, its bytes, and the checksum that was made when they were written."""

    state: HeaderState = HeaderState.EMPTY
    generation: int = 0
    digest: bytes = bytes(32)
    parent: bytes = ROOT_KEY
    position: int = 0
    identity: bytes = bytes(32)
    tenant: bytes = bytes(16)
    group: int = 0
    payload: bytes = b""
    checksum: bytes = b""

    @property
    def intact(self) -> bool:
        """Whether the bytes are those that were written."""
        return self.payload == self.checksum

    def header(self, index: int, payload_bytes: int) -> SlotHeader:
        """Its header, as the slot number ``index``."""
        return SlotHeader(
            state=self.state,
            slot=BlockId(index),
            generation=Generation(self.generation),
            file_id=NO_FILE,
            identity=IdentityDigest(self.identity),
            digest=ChainDigest(self.digest),
            parent=ContentKey(self.parent),
            position=self.position,
            payload_bytes=payload_bytes,
            checksum=bytes(16),
            tenant=TenantDigest(self.tenant),
            group=GroupId(self.group),
        )

    def rank_writes(self, generation: int, payload: bytes) -> None:
        """A rank of an engine writes under a grant, whether that is still one or not."""
        self.state, self.generation, self.payload = HeaderState.WRITING, generation, payload

    def damage(self) -> None:
        """Flip something in the bytes."""
        self.payload = self.payload[:-1] + bytes([self.payload[-1] ^ 1])


@dataclass(slots=True)
class FakeTier:
    """Slots of one tier; ``name`` is the id of arena or slab."""

    name: bytes
    slots: list[FakeSlot]

    @classmethod
    def of(cls, name: str, slots: int) -> "FakeTier":
        """A tier of empty slots."""
        return cls(name.encode().ljust(16, b"\0"), [FakeSlot() for _ in range(slots)])

    def records(self, busy: frozenset[int] = frozenset(), payload_bytes: int = 4_096) -> bytes:
        """Slots that were ever granted, as a worker lists them."""
        return b"".join(
            inventory_record(pack_header(slot.header(index, payload_bytes)))
            for index, slot in enumerate(self.slots)
            if slot.state is not HeaderState.EMPTY and index not in busy
        )


@dataclass(slots=True)
class FakeEngineMemory:
    """Memory and guards of one engine, and every write that a worker made there."""

    blocks: list[bytes]
    guards: list[int]
    written: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, blocks: int) -> "FakeEngineMemory":
        """Empty memory."""
        return cls([b""] * blocks, [0] * blocks)

    def fill(self, block: int, digest: ChainDigest) -> int:
        """Compute a block: the guard rises first; returns the guard."""
        return self.fill_row([block], digest)[0]

    def fill_row(self, pages: Sequence[int], digest: ChainDigest) -> list[int]:
        """Compute a row of pages: their guards rise first; returns the guards."""
        for page, part in zip(pages, parts_of(payload_of(digest), len(pages)), strict=True):
            self.guards[page] += 1
            self.blocks[page] = part
        return [self.guards[page] for page in pages]

    def row(self, pages: Sequence[int]) -> bytes:
        """What some pages hold together."""
        return b"".join(self.blocks[page] for page in pages)


@dataclass(slots=True)
class FakeStore:
    """The shared store with its index."""

    geometry: PackGeometry
    packs: dict[PackId, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    """Per pack, digest and payload of each record."""
    groups: dict[PackId, GroupId] = field(default_factory=dict)
    """KV group that the records of a pack say they are of."""
    index: dict[StoredKey, Locator] = field(default_factory=dict)

    def put(self, pack: PackId, group: GroupId, records: list[tuple[bytes, bytes]]) -> None:
        """Store a pack and locate its blocks."""
        self.packs[pack], self.groups[pack] = records, group
        for place, (digest, _) in enumerate(records):
            self.index[stored_key(key_of(digest), group)] = Locator(
                pack, place, len(records), self.geometry.stride_bytes
            )

    def read(self, pack: PackId, place: int) -> tuple[bytes, bytes] | None:
        """One record; None where the pack is gone or has no such record."""
        records = self.packs.get(pack)
        return records[place] if records is not None and place < len(records) else None

    def forget(self, pack: PackId) -> None:
        """The index no longer points to a pack."""
        self.index = {key: locator for key, locator in self.index.items() if locator.pack != pack}
