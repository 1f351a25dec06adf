"""Engines that said hello: who they are, what they hold, and where their memory is mapped.

One session is one registration over one connection. An engine that says hello again over a new connection replaces
its earlier session; what the earlier one held leaves with events.
Invariants: at most one session per (engine, dp rank); mapping numbers are unique over all lives of the block-manager,
since a worker may still know mappings of an earlier life.
Threading: owned by the event loop of the service. No await.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from blockyard.core.errors import (
    IdentityMismatchError,
    LayoutMismatchError,
    RequestError,
    UnknownSessionError,
    UnsupportedOperationError,
    UnsupportedVersionError,
)
from blockyard.core.events import EventOwner, OwnerKind
from blockyard.core.identity import HASH_VERSION, ModelIdentity
from blockyard.core.vocabulary import EngineBlockId, EngineId, IdentityDigest, SessionId, Tier
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.connector_channel import Hello
from blockyard_block_manager.event_log import EventLog
from blockyard_block_manager.g1_set import G1Block, G1Change, G1Set
from blockyard_block_manager.node_profile import NodeProfile

_MAPPINGS_PER_EPOCH_BITS: Final = 20
_MAX_ENGINE_NAME: Final = 128
_MAX_RANK: Final = 65_535
_MAX_MEMORY_BYTES: Final = 1 << 46
"""Far above the memory of any engine, and small enough for every offset on the way."""
_SUPPORTED_GROUPS: Final = ("full",)


@dataclass(slots=True, eq=False)
class EngineSession:
    """One connected engine; compared by identity."""

    session: SessionId
    engine: EngineId
    dp_rank: int
    identity: IdentityDigest
    model: ModelIdentity
    blocks: int
    block_bytes: int
    stride_bytes: int
    mapping_number: int
    """Name of its memory at the offload-worker."""
    mapping: int | None = None
    """``mapping_number`` while the attached life of the offload-worker maps the memory, else None."""
    g1: G1Set = field(default_factory=G1Set)
    load_targets: set[EngineBlockId] = field(default_factory=set)
    """Memory blocks that an open load may still write; disjoint from ``g1``."""
    closed: bool = False

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
        self._opened = 0

    def __iter__(self) -> Iterator[EngineSession]:
        """Connected engines, oldest first."""
        return iter(tuple(self._sessions.values()))

    def __len__(self) -> int:
        """Connected engines."""
        return len(self._sessions)

    def of(self, engine: EngineId, dp_rank: int) -> EngineSession | None:
        """Session of an engine, if it is connected."""
        return self._sessions.get((engine, dp_rank))

    def check(self, hello: Hello) -> None:
        """Refuse an engine that does not fit this node, naming the field.

        Raises:
            UnsupportedVersionError, IdentityMismatchError, LayoutMismatchError, UnsupportedOperationError, RequestError
        """
        identity, profile = hello.identity, self._profile
        if hello.version != PROTOCOL_VERSION:
            raise UnsupportedVersionError(theirs=hello.version, ours=PROTOCOL_VERSION)
        if not hello.engine or len(hello.engine) > _MAX_ENGINE_NAME or not hello.engine.isprintable():
            raise RequestError("an engine has a printable name", field="engine", limit=_MAX_ENGINE_NAME)
        if hello.executor != "mapped":
            raise UnsupportedOperationError("no such executor", field="executor", given=hello.executor, known="mapped")
        for name, given, wanted in (
            ("block_tokens", identity.block_tokens, profile.block_tokens),
            ("block_bytes", identity.block_bytes, profile.block_bytes),
            ("hash_version", identity.hash_version, HASH_VERSION),
        ):
            if given != wanted:
                raise IdentityMismatchError("engine and node differ", field=name, engine=given, node=wanted)
        if identity.group_spec not in _SUPPORTED_GROUPS:
            raise UnsupportedOperationError(
                "this node stores models with one full-attention group",
                field="group_spec",
                given=identity.group_spec,
                known=", ".join(_SUPPORTED_GROUPS),
            )
        if identity.engine_block_tokens < 1 or identity.block_tokens % identity.engine_block_tokens:
            raise IdentityMismatchError(
                "a block is a whole number of engine blocks",
                field="engine_block_tokens",
                engine=identity.engine_block_tokens,
                node=profile.block_tokens,
            )
        if hello.block_bytes != profile.block_bytes:
            raise LayoutMismatchError(field="block_bytes", engine=hello.block_bytes, node=profile.block_bytes)
        if hello.stride_bytes < hello.block_bytes:
            raise LayoutMismatchError("blocks overlap", field="stride_bytes", engine=hello.stride_bytes)
        if hello.blocks < 1 or not 0 <= hello.dp_rank <= _MAX_RANK:
            raise RequestError("an engine has blocks and a rank", blocks=hello.blocks, dp_rank=hello.dp_rank)
        if max(hello.blocks, hello.stride_bytes, hello.blocks * hello.stride_bytes) > _MAX_MEMORY_BYTES:
            raise LayoutMismatchError(
                "no engine has so much memory", field="blocks", engine=hello.blocks, limit_bytes=_MAX_MEMORY_BYTES
            )

    def open(self, hello: Hello) -> EngineSession:
        """Register a checked engine; an earlier session of it must have been closed."""
        self._opened += 1
        session = EngineSession(
            session=SessionId(secrets.token_hex(8)),
            engine=EngineId(hello.engine),
            dp_rank=hello.dp_rank,
            identity=hello.identity.digest(),
            model=hello.identity,
            blocks=hello.blocks,
            block_bytes=hello.block_bytes,
            stride_bytes=hello.stride_bytes,
            mapping_number=(self._profile.epoch << _MAPPINGS_PER_EPOCH_BITS) + self._opened,
        )
        self._sessions[session.engine, session.dp_rank] = session
        return session

    def close(self, session: EngineSession) -> None:
        """Forget an engine: its G1 set leaves with events. Idempotent."""
        if session.closed:
            return
        session.closed = True
        session.mapping = None
        self._announce(session, session.g1.clear())
        if self._sessions.get((session.engine, session.dp_rank)) is session:
            del self._sessions[session.engine, session.dp_rank]

    # --- G1 sets ------------------------------------------------------------------------------------------------------
    def register(self, session: EngineSession, blocks: Sequence[G1Block]) -> int:
        """Complete blocks of one scope entered the engine's memory; returns how many contents are new there.

        Raises:
            RequestError: an open load may still write one of the memory blocks: its bytes are not known yet.
        """
        self._require_open(session)
        loading = session.load_targets.intersection(block.block for block in blocks)
        if loading:
            raise RequestError("a block cannot be registered before its load has ended", block=min(loading))
        change = session.g1.register(blocks)
        self._announce(session, change)
        return len(change.stored)

    def deregister(self, session: EngineSession, blocks: Sequence[EngineBlockId]) -> None:
        """The engine reuses or frees memory blocks."""
        self._require_open(session)
        self._announce(session, session.g1.deregister(blocks))

    def reset(self, session: EngineSession) -> None:
        """The engine dropped everything: one ``cleared`` event for its G1 set."""
        self._require_open(session)
        if len(session.g1):
            session.g1.clear()
            self._events.cleared(session.owner, Tier.G1)

    def _require_open(self, session: EngineSession) -> None:
        if session.closed:
            raise UnknownSessionError("the session has been replaced or closed", engine=session.engine)

    def _announce(self, session: EngineSession, change: G1Change) -> None:
        gone = [(block.scope.identity, block.scope.group, block.name.key) for block in change.removed]
        self._events.removed(session.owner, Tier.G1, gone)
        grouped: dict[object, list[G1Block]] = {}
        for block in change.stored:
            grouped.setdefault(block.scope, []).append(block)
        for blocks in grouped.values():
            self._events.stored(session.owner, Tier.G1, blocks[0].scope, [block.name for block in blocks])
