"""KV events as they travel on NATS, for routers, schedulers and other nodes.

One message is one event with one sequence number; it names up to a few hundred blocks in packed columns. An epoch
starts from the empty set at sequence 0. ``offloaded`` adds a copy and removes nothing. Consumers tolerate unknown
fields and must refuse unknown tags as malformed.
"""

import msgspec

from blockyard.core.events import OwnerKind as OwnerKind
from blockyard.core.vocabulary import DEFAULT_TENANT


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Holder of blocks: an engine (G1), a node (G2, G3) or the shared store (G4)."""

    kind: OwnerKind
    name: str
    dp_rank: int = 0


class Stored(msgspec.Struct, frozen=True, kw_only=True, tag="stored"):
    """Blocks became readable in a tier; keys and parents n × 16, positions n × u32."""

    owner: Owner
    tier: int
    identity: bytes
    tenant: bytes = DEFAULT_TENANT
    group: int = 0
    block_tokens: int
    keys: bytes
    parents: bytes
    positions: bytes


class Offloaded(msgspec.Struct, frozen=True, kw_only=True, tag="offloaded"):
    """As ``stored`` in ``to_tier``, with the tier the copy was made from."""

    owner: Owner
    from_tier: int
    to_tier: int
    identity: bytes
    tenant: bytes = DEFAULT_TENANT
    group: int = 0
    block_tokens: int
    keys: bytes
    parents: bytes
    positions: bytes


class Removed(msgspec.Struct, frozen=True, kw_only=True, tag="removed"):
    """The last copies of these blocks at this owner and tier are gone."""

    owner: Owner
    tier: int
    identity: bytes
    group: int = 0
    keys: bytes


class Cleared(msgspec.Struct, frozen=True, kw_only=True, tag="cleared"):
    """Everything in scope is gone at this sequence number; an empty field does not narrow the scope."""

    owner: Owner | None = None
    tier: int = 0
    identity: bytes = b""
    tenant: bytes = b""


Event = Stored | Offloaded | Removed | Cleared


class EventMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Envelope of one event."""

    version: int
    instance: str
    epoch: int
    seq: int
    event: Event


class InstanceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Value of a node in the NATS KV bucket ``instances`` (JSON): its name is the key, its lease the entry's TTL."""

    instance: str
    folder: str
    epoch: int
    api_url: str
    engines: tuple[str, ...] = ()
    version: str = ""
