"""Which G4 packs can be put now, from what is registered in G2.

Packs are cut at multiples of P of the position, P the same for everybody, so that equal prefixes give equal packs on
all nodes. A pack is named by the key of its last block, which fixes its whole content. A full pack is due when all its
blocks are in G2; a tail (fewer than P blocks, the end of a chain) when it got no new block for a while. Every KV group
has chains of its own: all keys here are *stored keys* (``stored_key``).
::

    registered -> candidate --previous pack known in G4, or put in the same job--> in flight --stored--> known
                     ^  +------ else: waits for the previous pack ------^             +--failed--> candidate, later

Invariants: what is put is closed under prefixes, group by group; no pack is planned while it is in flight or known to
be in G4; memory is bounded by the rows of G2 plus ``max_known`` keys.
Threading: owned by one thread. Pure; time is an argument.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from blockyard.core.block_name import BlockName
from blockyard.core.errors import ConfigurationError
from blockyard.core.events import BlockScope
from blockyard.core.stored_key import ROOT, StoredKey, stored_key, stored_keys
from blockyard.core.vocabulary import IdentityDigest, PackId, TenantDigest
from blockyard.core.whole_numbers import is_whole

RECORD_HEADER_BYTES: Final = 256
RECORD_UNIT_BYTES: Final = 256
MAX_PACK_BLOCKS: Final = 64
MAX_TIMERS_PER_CALL: Final = 1_024


@dataclass(frozen=True, slots=True)
class PackGeometry:
    """Size of packs for one payload size.

    Attributes:
        payload_bytes: bytes of one block.
        target_bytes: wanted size of an object; part of the store's identity, equal for all who share it.
    """

    payload_bytes: int
    target_bytes: int

    def __post_init__(self) -> None:
        """Refuse sizes that make no pack."""
        if not (is_whole(self.payload_bytes, least=1) and is_whole(self.target_bytes, least=1)):
            raise ConfigurationError("a pack has a payload and a size", key="g4.target_bytes")

    @property
    def stride_bytes(self) -> int:
        """Bytes from record to record: slot header, payload, padding."""
        units = -(-self.payload_bytes // RECORD_UNIT_BYTES)
        return RECORD_HEADER_BYTES + units * RECORD_UNIT_BYTES

    @property
    def blocks_per_pack(self) -> int:
        """P: largest power of two that stays within the target, between 1 and 64."""
        fitting = self.target_bytes // self.stride_bytes
        return max(1, min(MAX_PACK_BLOCKS, 1 << (fitting.bit_length() - 1) if fitting else 1))

    def segment_start(self, position: int) -> int:
        """First position of the pack that covers ``position``."""
        return position - position % self.blocks_per_pack

    def ends_pack(self, position: int) -> bool:
        """True where the block at ``position`` is the last of a full pack."""
        return position % self.blocks_per_pack == self.blocks_per_pack - 1


@dataclass(frozen=True, slots=True)
class PackPlan:
    """One pack that can be put now.

    Attributes:
        pack: stored key of its last block.
        names: its blocks in order.
        scope: what they have in common.
        previous: pack that has to be put before it, in the same job; None where nothing has to. A plan with
            ``previous`` belongs to the job of the plan before it in the list.
    """

    pack: PackId
    names: tuple[BlockName, ...]
    scope: BlockScope
    previous: PackId | None = None

    @property
    def keys(self) -> tuple[StoredKey, ...]:
        """Stored keys in order."""
        return tuple(stored_keys((name.key for name in self.names), self.scope.group))

    @property
    def first_position(self) -> int:
        """Position of the first block."""
        return self.names[0].position

    @property
    def identity(self) -> IdentityDigest:
        """Model identity of the blocks."""
        return self.scope.identity

    @property
    def tenant(self) -> TenantDigest:
        """Tenant of the blocks."""
        return self.scope.tenant


@dataclass(slots=True)
class _Node:
    name: BlockName
    scope: BlockScope
    parent: StoredKey
    check_at: float | None = None
    waits_on: StoredKey | None = None


@dataclass(slots=True)
class _Round:
    """Plans of one call of ``due``, while they are being ordered."""

    plans: dict[StoredKey, PackPlan] = field(default_factory=dict)
    followers: dict[StoredKey, list[StoredKey]] = field(default_factory=dict)
    heads: list[StoredKey] = field(default_factory=list)


class PackPlanner:
    """Packs of one node's G2."""

    def __init__(
        self,
        geometry: PackGeometry,
        *,
        tail_idle_seconds: float = 2.0,
        retry_seconds: float = 5.0,
        max_known: int = 262_144,
        max_job_blocks: int = 256,
    ) -> None:
        """Start with nothing registered and nothing known.

        Args:
            geometry: size of packs.
            tail_idle_seconds: how long the end of a chain must rest before its tail is due.
            retry_seconds: how long a failed pack rests.
            max_known: keys remembered as being in G4; the least recently learned are forgotten first, which costs at
                most a repeated put.
            max_job_blocks: blocks in one job of consecutive packs.
        """
        self.geometry: Final = geometry
        self._tail_idle_seconds = tail_idle_seconds
        self._retry_seconds = retry_seconds
        self._max_known = max_known
        self._max_job_blocks = max(max_job_blocks, geometry.blocks_per_pack)
        self._nodes: dict[StoredKey, _Node] = {}
        self._children: dict[StoredKey, set[StoredKey]] = {}
        self._ready: set[StoredKey] = set()
        # By position, then key; entries of blocks that are ready no more are skipped when they come up.
        self._queue: list[tuple[int, StoredKey]] = []
        self._waiting: dict[StoredKey, set[StoredKey]] = {}
        self._timers: list[tuple[float, StoredKey]] = []
        self._in_flight: dict[PackId, PackPlan] = {}
        self._known: OrderedDict[StoredKey, None] = OrderedDict()

    # --- what G2 holds ------------------------------------------------------------------------------------------
    def registered(self, names: Iterable[BlockName], scope: BlockScope, now: float) -> None:
        """Blocks became readable in G2; repeated blocks change nothing."""
        fresh: list[StoredKey] = []
        for name in names:
            key = stored_key(name.key, scope.group)
            if key not in self._nodes:
                parent = stored_key(name.parent, scope.group)
                self._nodes[key] = _Node(name, scope, parent)
                fresh.append(key)
                if name.position != self.geometry.segment_start(name.position):
                    self._children.setdefault(parent, set()).add(key)
        self._look_at(fresh, now + self._tail_idle_seconds)

    def evicted(self, keys: Iterable[StoredKey], now: float) -> None:
        """Blocks left G2. What became the end of a chain by this is a tail from now on."""
        for key in keys:
            node = self._nodes.pop(key, None)
            if node is None:
                continue
            self._ready.discard(key)
            self._stop_waiting(key, node)
            siblings = self._children.get(node.parent)
            if siblings is not None:
                siblings.discard(key)
                if not siblings:
                    del self._children[node.parent]
                    self._look_at([node.parent], now + self._tail_idle_seconds)

    # --- what G4 holds ------------------------------------------------------------------------------------------
    def known(self, keys: Iterable[StoredKey]) -> None:
        """Blocks are in G4: found in the index, or just put."""
        for key in keys:
            self._known[key] = None
            self._known.move_to_end(key)
            for waiting in self._waiting.pop(key, ()):
                self._make_ready(waiting)
        while len(self._known) > self._max_known:
            self._known.popitem(last=False)

    def lost(self, keys: Iterable[StoredKey], now: float) -> None:
        """Blocks are not in G4 after all; where G2 holds them they may be put again."""
        gone = [key for key in keys if key in self._known]
        for key in gone:
            self._known.pop(key, None)
        self._look_at(gone, now + self._retry_seconds)

    def stored(self, pack: PackId) -> None:
        """A planned pack was put; those that waited for it are candidates."""
        plan = self._in_flight.pop(pack, None)
        if plan is not None:
            self.known(plan.keys)

    def failed(self, pack: PackId, now: float) -> None:
        """A planned pack was not put; it is a candidate again after a rest."""
        plan = self._in_flight.pop(pack, None)
        if plan is not None:
            self._check_later(StoredKey(pack), now + self._retry_seconds)

    # --- what to do ---------------------------------------------------------------------------------------------
    def due(self, now: float, limit: int = 64) -> list[PackPlan]:
        """Packs to put now, at most ``limit``; each is in flight until ``stored`` or ``failed`` is told.

        A plan with ``previous`` directly continues the job of the plans before it, back to the last one without.
        """
        self._run_timers(now)
        this = _Round()
        while self._queue and len(this.plans) < limit:
            _, key = heapq.heappop(self._queue)
            if key in self._ready:
                self._ready.discard(key)
                self._consider(key, this)
        return [plan for head in this.heads for plan in self._job(head, this)]

    @property
    def in_flight(self) -> int:
        """Packs that are being put."""
        return len(self._in_flight)

    @property
    def remembered(self) -> int:
        """Entries in memory, for the bound."""
        return len(self._nodes) + len(self._timers) + len(self._queue) + len(self._known) + len(self._in_flight)

    # --- inside -------------------------------------------------------------------------------------------------
    def _look_at(self, keys: Iterable[StoredKey], tail_at: float) -> None:
        """Make candidates of full packs that contain these blocks, and set the time of tails that end below them."""
        stack, seen = list(keys), set[StoredKey]()
        while stack:
            key = stack.pop()
            node = self._nodes.get(key)
            if node is None or key in seen:
                continue
            seen.add(key)
            children = self._children.get(key)
            if self.geometry.ends_pack(node.name.position):
                self._make_ready(key)
            elif children:
                stack.extend(children)
            else:
                self._check_later(key, tail_at)

    def _check_later(self, key: StoredKey, when: float) -> None:
        node = self._nodes.get(key)
        if node is None:
            return
        node.check_at = when
        heapq.heappush(self._timers, (when, key))
        if len(self._timers) > 2 * len(self._nodes) + 64:
            live = [(node.check_at, key) for key, node in self._nodes.items() if node.check_at is not None]
            heapq.heapify(live)
            self._timers = live

    def _make_ready(self, key: StoredKey) -> None:
        if key in self._ready:
            return
        self._ready.add(key)
        heapq.heappush(self._queue, (self._nodes[key].name.position, key))
        if len(self._queue) > 2 * len(self._ready) + 64:
            self._queue = [(self._nodes[ready].name.position, ready) for ready in self._ready]
            heapq.heapify(self._queue)

    def _run_timers(self, now: float) -> None:
        """Look at tails whose time has come; after a recovery they may be many, so the rest has its turn later."""
        for _ in range(MAX_TIMERS_PER_CALL):
            if not self._timers or self._timers[0][0] > now:
                return
            when, key = heapq.heappop(self._timers)
            node = self._nodes.get(key)
            if node is not None and node.check_at == when:
                node.check_at = None
                if self.geometry.ends_pack(node.name.position) or not self._children.get(key):
                    self._make_ready(key)

    def _consider(self, key: StoredKey, this: _Round) -> None:
        node = self._nodes[key]
        self._stop_waiting(key, node)
        segment = self._segment_up_to(key)
        if segment is None or key in self._known or PackId(key) in self._in_flight:
            return
        before, names = segment[0].parent, tuple(part.name for part in segment)
        if before == ROOT or before in self._known:
            this.heads.append(key)
            this.plans[key] = PackPlan(PackId(key), names, node.scope)
        elif before in this.plans:
            this.followers.setdefault(before, []).append(key)
            this.plans[key] = PackPlan(PackId(key), names, node.scope, previous=PackId(before))
        else:
            self._wait(key, before)

    def _segment_up_to(self, key: StoredKey) -> list[_Node] | None:
        """Blocks from the start of the segment to ``key``; None where one of them is not in G2.

        Names come from engines, which may name a parent that is no neighbour, or the block itself.
        """
        nodes: list[_Node] = []
        node = self._nodes.get(key)
        while node is not None and (not nodes or node.name.position == nodes[-1].name.position - 1):
            nodes.append(node)
            if node.name.position == self.geometry.segment_start(node.name.position):
                return nodes[::-1]
            node = self._nodes.get(node.parent)
        return None

    def _job(self, head: StoredKey, this: _Round) -> list[PackPlan]:
        """Plans of one job, each after the one it needs; what does not fit waits until that one is stored."""
        plans: list[PackPlan] = []
        blocks, stack = 0, [head]
        while stack:
            key = stack.pop()
            plan = this.plans[key]
            stack.extend(reversed(this.followers.get(key, ())))
            fits = blocks + len(plan.names) <= self._max_job_blocks
            if fits and (plan.previous is None or plan.previous in self._in_flight):
                blocks += len(plan.names)
                plans.append(plan)
                self._in_flight[plan.pack] = plan
            else:
                self._wait(key, stored_key(plan.names[0].parent, plan.scope.group))
        return plans

    def _wait(self, key: StoredKey, before: StoredKey) -> None:
        self._nodes[key].waits_on = before
        self._waiting.setdefault(before, set()).add(key)

    def _stop_waiting(self, key: StoredKey, node: _Node) -> None:
        if node.waits_on is None:
            return
        waiting = self._waiting.get(node.waits_on)
        if waiting is not None:
            waiting.discard(key)
            if not waiting:
                del self._waiting[node.waits_on]
        node.waits_on = None
