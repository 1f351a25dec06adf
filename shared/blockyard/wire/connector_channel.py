"""Messages between an engine and its block-manager: scheduler half and rank halves.

Requests, their replies, and the pushes of the block-manager. Columns are packed bytes, aligned with each other:
digests n × 32, slots n × u32, generations and guards × u64 (little-endian). *Pages* and their guards are n × k, row by
row, k engine blocks per row of the group; ``NO_PAGE`` marks those that the engine has no use for.

An engine's connection begins with ``Hello``, that of a rank with ``AttachRank``; every other message is refused before.
The engine is usable once all its ranks are attached, in whatever order they come. An engine without ranks of its own
processes sends ``AttachRank`` on the same connection, after ``Hello``.
Lookup is pure; ``Reserve`` takes a lease that ``OpenLoad`` turns into a pin.

Two kinds of executor::

    mapped, nixl   a worker of the node copies: ``Register`` ... , ``OpenLoad`` with pages ... ``LoadFinished``
    engine         the ranks copy between G1 and granted slots of the arena, which they map:
                   ``ReserveStore`` -> copies -> ``CommitStore`` per shard;
                   ``OpenLoad`` without pages -> ``LoadStaged`` -> copies -> ``CloseLoad``
"""

import msgspec

from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import DEFAULT_TENANT, ROOT_KEY
from blockyard.wire.worker_channel import ArenaInfo, RegionInfo


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive blocks of one chain (see ``core.chain_run``)."""

    digests: bytes
    first_position: int = 0
    parent: bytes = ROOT_KEY


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One KV group of the model (see ``core.kv_groups``)."""

    group: int = 0
    kind: str = "full"
    engine_block_tokens: int
    window_tokens: int = 0
    replicated: bool = False


class RequestDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What was found for one request at its admission, what was loaded of it, and why not more (``core.cost``)."""

    request: str
    prompt_tokens: int
    local_tokens: int
    """Held in G1."""
    found_tokens: dict[str, int] = {}
    """Per tier label: tokens whose best source it was, in the prefix that could be restored."""
    loaded_tokens: int = 0
    reason: str
    """Why the hit ends where it ends: a ``MissReason``."""
    lookup_ms: float = 0.0


# --- requests -----------------------------------------------------------------------------------------------------
class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """Register an engine; one descriptor travels along: its guard words, a u64 per engine block."""

    version: int
    engine: str
    dp_rank: int = 0
    life: str = ""
    """Names this start of the engine, in all its processes alike: a process of an earlier start that still runs is no
    rank of this one, and its memory holds other bytes. Without a name of its own, starts are not told apart."""
    identity: ModelIdentity
    blocks: int
    """Engine blocks in the engine's KV memory (G1); all groups share their numbers."""
    groups: tuple[Group, ...]
    ranks: int = 1
    executor: str = "mapped"


class AttachRank(msgspec.Struct, frozen=True, kw_only=True, tag="attach_rank"):
    """KV memory of one rank: its descriptor travels along, except with executor ``engine``, whose ranks keep it.

    The connection that sends it is the rank's life: when it ends, the engine is unmapped until the rank is back.
    """

    version: int
    engine: str
    dp_rank: int = 0
    life: str = ""
    """That of ``Hello``."""
    rank: int = 0
    memory_bytes: int
    regions: tuple[tuple[RegionInfo, ...], ...]
    """Per group, in the order of ``Hello.groups``."""


class Register(msgspec.Struct, frozen=True, kw_only=True, tag="register"):
    """Rows whose writes are complete in all ranks; the block-manager stores them in lower tiers by its policy."""

    run: Run
    group: int = 0
    tenant: bytes = DEFAULT_TENANT
    pages: bytes
    guards: bytes
    ticket: int = 0
    """Where it is not 0, a ``StoresSettled`` push follows when no store of these rows is wanted or under way."""


class Deregister(msgspec.Struct, frozen=True, kw_only=True, tag="deregister"):
    """Engine blocks that the engine reuses or frees; their guards have been raised before."""

    blocks: bytes


class Lookup(msgspec.Struct, frozen=True, kw_only=True, tag="lookup"):
    """Where are these blocks? Takes nothing."""

    run: Run
    groups: tuple[int, ...] = (0,)
    tenant: bytes = DEFAULT_TENANT
    remote_wait_ms: int = 0
    """How long the answer may wait for the shared index; 0 = local tiers only."""


class Reserve(msgspec.Struct, frozen=True, kw_only=True, tag="reserve"):
    """Lease the local blocks of a request against eviction; repeating renews and replaces it."""

    request: str
    run: Run
    groups: tuple[int, ...] = (0,)
    ttl_ms: int = 5_000


class Release(msgspec.Struct, frozen=True, kw_only=True, tag="release"):
    """End the lease of a request; idempotent."""

    request: str


class OpenLoad(msgspec.Struct, frozen=True, kw_only=True, tag="open_load"):
    """Bring the rows of a run into G1: row i into ``pages[i*k:(i+1)*k]``, whose guards are aligned with them.

    Without pages (executor ``engine``) the rows are brought into G2 and pinned there; ``LoadStaged`` says where.
    """

    request: str
    run: Run
    group: int = 0
    tenant: bytes = DEFAULT_TENANT
    pages: bytes = b""
    guards: bytes = b""
    ttl_ms: int


class CloseLoad(msgspec.Struct, frozen=True, kw_only=True, tag="close_load"):
    """The engine has no more use for a load; answered once no write into its G1 blocks can follow.

    Of a staged load it ends the pins: no copy of the ranks reads its slots any more.
    """

    load: int


class ReserveStore(msgspec.Struct, frozen=True, kw_only=True, tag="reserve_store"):
    """Grant slots of the arena ahead (store credits), which the ranks of this engine may write."""

    count: int


class CommitStore(msgspec.Struct, frozen=True, kw_only=True, tag="commit_store"):
    """Slot i of a grant holds these shards of row i of the run; a row is stored when all its shards are there."""

    grant: int
    slots: bytes
    run: Run
    group: int = 0
    tenant: bytes = DEFAULT_TENANT
    shards: int
    """Bit mask."""


class AbortStore(msgspec.Struct, frozen=True, kw_only=True, tag="abort_store"):
    """These slots of a grant are given back; no rank writes them any more."""

    grant: int
    slots: bytes


class ReportDecisions(msgspec.Struct, frozen=True, kw_only=True, tag="report_decisions"):
    """What the engine decided for requests, so that operators can ask why something was a miss."""

    decisions: tuple[RequestDecision, ...]


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
    loading: bool = True
    """Whether loads are switched on at this node."""


class RankAttached(msgspec.Struct, frozen=True, kw_only=True, tag="rank_attached"):
    """Reply to ``AttachRank``; with executor ``engine`` the arena's descriptor travels along."""

    version: int
    arena: ArenaInfo | None = None


class Registered(msgspec.Struct, frozen=True, kw_only=True, tag="registered"):
    """Reply to ``Register``: how many blocks were new, and how many stores were planned."""

    registered: int
    stores: int


class LookupReply(msgspec.Struct, frozen=True, kw_only=True, tag="found"):
    """Reply to ``Lookup``: one ``Availability`` byte per block, all blocks of the first group first, then the next."""

    availability: bytes
    loading: bool = True
    """Whether loads are switched on at this node; where not, every block is a MISS."""


class Reserved(msgspec.Struct, frozen=True, kw_only=True, tag="reserved"):
    """Reply to ``Reserve``: blocks held in all groups, counted from the start of the run."""

    held: int
    ttl_ms: int


class LoadOpened(msgspec.Struct, frozen=True, kw_only=True, tag="load_opened"):
    """Reply to ``OpenLoad``: a ``LoadFinished`` push with this id will follow."""

    load: int


class StoreGranted(msgspec.Struct, frozen=True, kw_only=True, tag="store_granted"):
    """Reply to ``ReserveStore``: as many slots as there were, with the generation under which each may be written."""

    grant: int
    slots: bytes
    generations: bytes


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


class LoadStaged(msgspec.Struct, frozen=True, kw_only=True, tag="load_staged"):
    """A load without pages lies in G2, checked and pinned until ``CloseLoad``; per row as in ``LoadFinished``.

    Slots and generations of rows that are not OK are zero.
    """

    load: int
    status: bytes
    sources: bytes
    slots: bytes
    generations: bytes


class StoresSettled(msgspec.Struct, frozen=True, kw_only=True, tag="stores_settled"):
    """No store of the rows registered under this ticket reads engine memory any more, or will."""

    ticket: int


class ArenaReplaced(msgspec.Struct, frozen=True, kw_only=True, tag="arena_replaced"):
    """To ranks that map the arena: it is replaced, attach again; nothing written to the old one is ever read."""


class LoadingSwitched(msgspec.Struct, frozen=True, kw_only=True, tag="loading_switched"):
    """An operator switched loads off or on."""

    loading: bool


Request = (
    Hello
    | AttachRank
    | Register
    | Deregister
    | Lookup
    | Reserve
    | Release
    | OpenLoad
    | CloseLoad
    | ReserveStore
    | CommitStore
    | AbortStore
    | ReportDecisions
    | Settle
    | Reset
)
Reply = Welcome | RankAttached | Registered | LookupReply | Reserved | LoadOpened | StoreGranted | Done
Push = LoadFinished | LoadStaged | StoresSettled | ArenaReplaced | LoadingSwitched
