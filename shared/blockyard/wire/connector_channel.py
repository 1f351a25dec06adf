"""Messages between a connector (inside an engine) and its block-manager.

Requests of the connector, their replies, and the pushes of the block-manager. Columns are packed bytes, aligned with
each other: digests n × 32, blocks n × u32, guards n × u64 (little-endian). The first message is ``Hello``; every other
one is refused before it. Lookup is pure; ``Reserve`` takes a lease that ``OpenLoad`` turns into a pin.
"""

import msgspec

from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import DEFAULT_TENANT, ROOT_KEY


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive blocks of one chain (see ``core.chain_run``)."""

    digests: bytes
    first_position: int = 0
    parent: bytes = ROOT_KEY


# --- requests -----------------------------------------------------------------------------------------------------
class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """Register an engine; with executor ``mapped`` two descriptors travel along: KV memory, guard words."""

    version: int
    engine: str
    dp_rank: int = 0
    identity: ModelIdentity
    blocks: int
    """Blocks in the engine's KV memory (G1)."""
    block_bytes: int
    """Payload bytes per block."""
    stride_bytes: int
    """Distance of two blocks in the KV memory."""
    executor: str = "mapped"


class Register(msgspec.Struct, frozen=True, kw_only=True, tag="register"):
    """G1 blocks whose writes are complete; the block-manager stores them in lower tiers by its policy."""

    run: Run
    tenant: bytes = DEFAULT_TENANT
    blocks: bytes
    guards: bytes


class Deregister(msgspec.Struct, frozen=True, kw_only=True, tag="deregister"):
    """G1 blocks that the engine reuses or frees; their guards have been raised before."""

    blocks: bytes


class Lookup(msgspec.Struct, frozen=True, kw_only=True, tag="lookup"):
    """Where are these blocks? Takes nothing."""

    run: Run
    tenant: bytes = DEFAULT_TENANT
    remote_wait_ms: int = 0
    """How long the answer may wait for the shared index; 0 = local tiers only."""


class Reserve(msgspec.Struct, frozen=True, kw_only=True, tag="reserve"):
    """Lease the local blocks of a request against eviction; repeating renews and replaces it."""

    request: str
    run: Run
    ttl_ms: int = 5_000


class Release(msgspec.Struct, frozen=True, kw_only=True, tag="release"):
    """End the lease of a request; idempotent."""

    request: str


class OpenLoad(msgspec.Struct, frozen=True, kw_only=True, tag="open_load"):
    """Bring blocks into G1: block i of the run into ``blocks[i]``, whose guard is ``guards[i]``."""

    request: str
    run: Run
    tenant: bytes = DEFAULT_TENANT
    blocks: bytes
    guards: bytes
    ttl_ms: int


class CloseLoad(msgspec.Struct, frozen=True, kw_only=True, tag="close_load"):
    """The engine has no more use for a load; answered once no write into its G1 blocks can follow."""

    load: int


class Settle(msgspec.Struct, frozen=True, kw_only=True, tag="settle"):
    """Answered once no job of an earlier session or life of the block-manager can still write this engine's G1."""


class Reset(msgspec.Struct, frozen=True, kw_only=True, tag="reset"):
    """The engine dropped its whole prefix cache: its G1 set becomes empty."""


# --- replies ------------------------------------------------------------------------------------------------------
class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    """Reply to ``Hello``."""

    version: int
    instance: str
    epoch: int
    session: str
    identity: bytes


class Registered(msgspec.Struct, frozen=True, kw_only=True, tag="registered"):
    """Reply to ``Register``: how many blocks were new, and how many stores were planned."""

    registered: int
    stores: int


class LookupReply(msgspec.Struct, frozen=True, kw_only=True, tag="found"):
    """Reply to ``Lookup``: one ``Availability`` byte per block."""

    availability: bytes


class Reserved(msgspec.Struct, frozen=True, kw_only=True, tag="reserved"):
    """Reply to ``Reserve``: blocks held, counted from the start of the run."""

    held: int
    ttl_ms: int


class LoadOpened(msgspec.Struct, frozen=True, kw_only=True, tag="load_opened"):
    """Reply to ``OpenLoad``: a ``LoadFinished`` push with this id will follow."""

    load: int


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """Reply of requests without a result of their own."""


# --- pushes -------------------------------------------------------------------------------------------------------
class LoadFinished(msgspec.Struct, frozen=True, kw_only=True, tag="load_finished"):
    """End of a load: one ``ItemStatus`` and one source ``Tier`` byte per block (tier 0 where nothing was loaded).

    Only the run of OK items from the start is usable as a prefix.
    """

    load: int
    status: bytes
    sources: bytes


Request = Hello | Register | Deregister | Lookup | Reserve | Release | OpenLoad | CloseLoad | Settle | Reset
Reply = Welcome | Registered | LookupReply | Reserved | LoadOpened | Done
Push = LoadFinished
