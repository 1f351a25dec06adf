"""Engines that said hello: who they are, what they hold, and where their memory is mapped.

One session is one registration over one connection. An engine that says hello again over a new connection replaces
its earlier session; what the earlier one held leaves with events. Each time all ranks of an engine are there, their
memory together gets a new mapping number.
Invariants: at most one session per (engine, dp rank); mapping numbers are unique over all lives of the block-manager,
since a worker may still know mappings of an earlier life.
Threading: owned by the event loop of the service. No await.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from blockyard.core.errors import RequestError, UnknownSessionError
from blockyard.core.events import EventOwner, OwnerKind
from blockyard.core.identity import ModelIdentity
from blockyard.core.kv_groups import KvGroup
from blockyard.core.vocabulary import EngineBlockId, EngineId, Executor, GroupId, IdentityDigest, SessionId, Tier
from blockyard.wire.connector_channel import Hello
from blockyard_block_manager.engine_checks import check_hello, kv_groups
from blockyard_block_manager.event_log import EventLog
from blockyard_block_manager.g1_set import G1Change, G1Row, G1Set, GroupKey
from blockyard_block_manager.node_profile import NodeProfile

_MAPPINGS_PER_EPOCH_BITS: Final = 20


@dataclass(slots=True, eq=False)
class EngineSession:
    """One connected engine; compared by identity."""

    session: SessionId
    engine: EngineId
    dp_rank: int
    life: str
    identity: IdentityDigest
    model: ModelIdentity
    blocks: int
    groups: tuple[KvGroup, ...]
    pages_per_row: tuple[int, ...]
    """Per group."""
    ranks: int
    executor: Executor
    mapping_number: int | None = None
    """Name of the memory of its ranks at the offload-worker; None while a rank is missing."""
    mapping: int | None = None
    """``mapping_number`` while the attached life of the offload-worker maps the memory, else None."""
    g1: G1Set = field(default_factory=G1Set)
    load_targets: set[EngineBlockId] = field(default_factory=set)
    """Pages that an open load may still write; disjoint from ``g1``."""
    closed: bool = False

    @property
    def complete(self) -> bool:
        """Whether all its ranks are attached."""
        return self.mapping_number is not None

    @property
    def reachable(self) -> bool:
        """Whether blocks can get into its memory now."""
        return self.complete if self.executor is Executor.ENGINE else self.mapping is not None

    def group(self, group: int) -> KvGroup:
        """One of its groups.

        Raises:
            RequestError: it has no such group.
        """
        if not 0 <= group < len(self.groups):
            raise RequestError("the engine has no such group", field="group", group=group, groups=len(self.groups))
        return self.groups[GroupId(group)]

    @property
    def owner(self) -> EventOwner:
        """Holder of its blocks in events."""
        return EventOwner(OwnerKind.ENGINE, self.engine, self.dp_rank)


class EngineSessions:
    """All connected engines."""

    def __init__(self, profile: NodeProfile, events: EventLog) -> None:
        """Start without engines."""
        self._profile = profile
        self._events = events
        self._sessions: dict[tuple[EngineId, int], EngineSession] = {}
        self._mappings = 0
        self._dropped: list[G1Set] = []

    def __iter__(self) -> Iterator[EngineSession]:
        """Connected engines, oldest first."""
        return iter(tuple(self._sessions.values()))

    def __len__(self) -> int:
        """Connected engines."""
        return len(self._sessions)

    def hold(self, content: GroupKey) -> bool:
        """Whether any of them has a block in its memory."""
        return any(session.g1.has(content) for session in self._sessions.values())

    def of(self, engine: EngineId, dp_rank: int) -> EngineSession | None:
        """Session of an engine, if it is connected."""
        return self._sessions.get((engine, dp_rank))

    def open(self, hello: Hello) -> EngineSession:
        """Register an engine; an earlier session of it must have been closed. Its ranks are still missing.

        Raises:
            BlockyardError: it does not fit this node; see ``check_hello``.
        """
        check_hello(hello, self._profile)
        groups = kv_groups(hello.groups)
        # The slots of this node are part of what makes blocks exchangeable, whatever the engine would make do with.
        identity = replace(hello.identity, block_bytes=self._profile.block_bytes)
        session = EngineSession(
            session=SessionId(secrets.token_hex(8)),
            engine=EngineId(hello.engine),
            dp_rank=hello.dp_rank,
            life=hello.life,
            identity=identity.digest(),
            model=identity,
            blocks=hello.blocks,
            groups=groups,
            pages_per_row=tuple(group.pages_per_row(self._profile.block_tokens) for group in groups),
            ranks=hello.ranks,
            executor=Executor(hello.executor),
        )
        self._sessions[session.engine, session.dp_rank] = session
        return session

    def ranks_complete(self, session: EngineSession) -> int:
        """All ranks are attached; returns the number under which their memory is to be mapped."""
        self._require_open(session)
        self._mappings += 1
        session.mapping_number = (self._profile.epoch << _MAPPINGS_PER_EPOCH_BITS) + self._mappings
        return session.mapping_number

    def close(self, session: EngineSession) -> None:
        """Forget an engine: one ``cleared`` event for its G1 set. Idempotent."""
        if session.closed:
            return
        session.closed = True
        session.mapping = session.mapping_number = None
        self._drop_set(session)
        if self._sessions.get((session.engine, session.dp_rank)) is session:
            del self._sessions[session.engine, session.dp_rank]

    # --- G1 sets ------------------------------------------------------------------------------------------------------
    def register(self, session: EngineSession, rows: Sequence[G1Row]) -> int:
        """Complete rows of one scope entered the engine's memory; returns how many contents are new there.

        Raises:
            RequestError: an open load may still write one of the pages: its bytes are not known yet.
        """
        self._require_open(session)
        loading = session.load_targets.intersection(page for row in rows for page in row.pages)
        if loading:
            raise RequestError("a block cannot be registered before its load has ended", block=min(loading))
        change = session.g1.register(rows)
        self._announce(session, change)
        return len(change.stored)

    def deregister(self, session: EngineSession, blocks: Sequence[EngineBlockId]) -> None:
        """The engine reuses or frees memory blocks."""
        self._require_open(session)
        self._announce(session, session.g1.deregister(blocks))

    def reset(self, session: EngineSession) -> None:
        """The engine dropped everything: one ``cleared`` event for its G1 set."""
        self._require_open(session)
        self._drop_set(session)

    @property
    def unswept(self) -> bool:
        """Whether sets of which nobody knows any more are still in memory."""
        return bool(self._dropped)

    def sweep(self, most: int) -> None:
        """Take up to ``most`` rows of those sets out of memory; it takes time for each."""
        if self._dropped and not self._dropped[-1].shrink(most):
            self._dropped.pop()

    def _drop_set(self, session: EngineSession) -> None:
        if len(session.g1):
            self._dropped.append(session.g1)
            session.g1 = G1Set()
            self._events.cleared(session.owner, Tier.G1)

    def _require_open(self, session: EngineSession) -> None:
        if session.closed:
            raise UnknownSessionError("the session has been replaced or closed", engine=session.engine)

    def _announce(self, session: EngineSession, change: G1Change) -> None:
        gone = [(row.scope.identity, row.scope.group, row.name.key) for row in change.removed]
        self._events.removed(session.owner, Tier.G1, gone)
        grouped: dict[object, list[G1Row]] = {}
        for row in change.stored:
            grouped.setdefault(row.scope, []).append(row)
        for rows in grouped.values():
            self._events.stored(session.owner, Tier.G1, rows[0].scope, [row.name for row in rows])
