"""Leases: an engine holds the local blocks of a request against eviction until it loads them, or gives them up.

A lookup takes nothing; ``reserve`` pins what G2 or G3 hold of a run in each group: of a group that needs every block
the run from the start, of a window what is there. Repeating it renews and replaces the lease. Leases together hold at
most a share of a tier; what goes beyond is simply not held.
Invariants: a lease is keyed by (session, request, group); it ends by release, load, expiry or the end of its session.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Sequence

from blockyard.core.block_name import BlockName
from blockyard.core.clock import Clock
from blockyard.core.kv_groups import GroupKind
from blockyard.core.pins import PinKind, PinOwner
from blockyard.core.vocabulary import GroupId, RequestId, Tier
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import LOCAL_TIERS, NodeTables


class Leases:
    """Leases of all sessions."""

    def __init__(self, profile: NodeProfile, tables: NodeTables, clock: Clock) -> None:
        """Pin in ``tables``."""
        self._profile = profile
        self._tables = tables
        self._clock = clock
        self._held: dict[PinOwner, dict[Tier, int]] = {}
        self._totals = dict.fromkeys(LOCAL_TIERS, 0)
        """Sums over ``_held``."""

    def __len__(self) -> int:
        """Leases that hold something."""
        return len(self._held)

    def reserve(
        self,
        session: EngineSession,
        request: RequestId,
        names: Sequence[BlockName],
        groups: Sequence[GroupId],
        ttl_ms: int,
    ) -> int:
        """Take, renew or replace the lease of a request; returns how many blocks from the start all groups hold."""
        deadline = self._clock.monotonic() + min(ttl_ms, self._profile.max_lease_ms) / 1_000
        held = [self._reserve(session, request, names, group, deadline) for group in groups]
        for group in session.groups:
            if group.group not in groups:
                self.release_group(session, request, group.group)
        return min(held, default=0)

    def release(self, session: EngineSession, request: RequestId) -> None:
        """End a lease. Idempotent."""
        for group in session.groups:
            self.release_group(session, request, group.group)

    def release_group(self, session: EngineSession, request: RequestId, group: GroupId) -> None:
        """End the part of a lease that holds one group. Idempotent."""
        self._end(_owner(session, request, group))

    def release_all(self, session: EngineSession) -> None:
        """The session is over."""
        prefix = f"{session.session}/"
        for owner in [owner for owner in self._held if owner.name.startswith(prefix)]:
            self._end(owner)

    def expire(self) -> None:
        """End the leases whose time is over."""
        for owner in self._tables.pins.expire(self._clock.monotonic()):
            self._forget(owner)

    def _reserve(
        self, session: EngineSession, request: RequestId, names: Sequence[BlockName], group: GroupId, deadline: float
    ) -> int:
        owner = _owner(session, request, group)
        keys = [name.key for name in names]
        in_g2 = self._tables.holds(Tier.G2, keys, group)
        in_g3 = self._tables.holds(Tier.G3, keys, group)
        room = {tier: self._room(tier, owner) for tier in LOCAL_TIERS}
        every = session.group(group).kind is GroupKind.FULL
        chosen: dict[Tier, list[int]] = {tier: [] for tier in LOCAL_TIERS}
        run = 0
        for index, (upper, lower) in enumerate(zip(in_g2, in_g3, strict=True)):
            tier = Tier.G2 if upper else Tier.G3 if lower else None
            if tier is not None and len(chosen[tier]) < room[tier]:
                chosen[tier].append(index)
                run += run == index
            elif every:
                break
        pinned = [
            self._tables.pool(tier).pin_all([keys[index] for index in indexes], group)
            for tier, indexes in chosen.items()
            if indexes
        ]
        self._end(owner)
        for blocks in pinned:
            self._tables.pins.add(owner, blocks, deadline)
        if pinned:
            self._held[owner] = {tier: len(indexes) for tier, indexes in chosen.items()}
            self._account(self._held[owner], 1)
        return run

    def _room(self, tier: Tier, owner: PinOwner) -> int:
        if not self._tables.has(tier):
            return 0
        own = self._held[owner][tier] if owner in self._held else 0
        return int(self._tables.pool(tier).capacity * self._profile.lease_share) - (self._totals[tier] - own)

    def _end(self, owner: PinOwner) -> None:
        self._forget(owner)
        self._tables.pins.release(owner)

    def _forget(self, owner: PinOwner) -> None:
        held = self._held.pop(owner, None)
        if held is not None:
            self._account(held, -1)

    def _account(self, held: dict[Tier, int], sign: int) -> None:
        for tier, count in held.items():
            self._totals[tier] += sign * count


def _owner(session: EngineSession, request: RequestId, group: GroupId) -> PinOwner:
    return PinOwner(PinKind.LEASE, f"{session.session}/{group}/{request}")
