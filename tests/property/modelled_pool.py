"""A pool beside its model: what every kind of step needs, and what holds after each; the steps are of the tests."""

from collections import Counter
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from blockyard.core.eviction.base import EvictionPolicy, RowColumns
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.handles import CompleteBlocks, DoomedBlocks, ImmutableBlocks, MutableBlocks, WeakBlocks
from blockyard.core.states import TRANSITIONS, DuplicatePolicy, RowState
from blockyard.core.vocabulary import BlockId, ContentKey
from blockyard.testing.block_model import BlockModel
from blockyard.testing.blocks import make_pool

SHARDS = st.sampled_from([1, 1, 2])
HANDLES: tuple[type[Any], ...] = (MutableBlocks, CompleteBlocks, ImmutableBlocks, DoomedBlocks)
Handle = MutableBlocks | CompleteBlocks | ImmutableBlocks | DoomedBlocks


class ModelledPool(RuleBasedStateMachine):
    """Makes pool and model, keeps handles, and compares the two after every step."""

    tried: ClassVar[Counter[str]] = Counter()
    """What the runs so far have really exercised."""

    @initialize(
        capacity=st.integers(3, 8), allow=st.booleans(), reset=st.sampled_from([False, False, True]), shards=SHARDS
    )
    def start(self, capacity: int, allow: bool, reset: bool, shards: int) -> None:
        duplicates = DuplicatePolicy.ALLOW if allow else DuplicatePolicy.REJECT
        self.pool = make_pool(capacity, self.make_policy, duplicates=duplicates, reset_on_release=reset, shards=shards)
        self.model = BlockModel(capacity, allow, reset, shards)
        self.handles: list[Handle] = []
        self.weak: list[WeakBlocks] = []
        self.states = [RowState.FREE] * capacity

    # --- what steps need ---
    def make_policy(self, columns: RowColumns) -> EvictionPolicy:
        self.policy = LruPolicy(columns)
        return self.policy

    def keep(self, handle: Handle, rows: list[int]) -> None:
        assert list(handle.ids) == rows
        if rows:
            self.handles.append(handle)

    def draw(self, data: st.DataObject, *kinds: type[Any]) -> Any:
        # By index: a strategy made of handles would keep dropped ones alive.
        fitting = [handle for handle in self.handles if isinstance(handle, kinds)]
        return fitting[data.draw(st.integers(0, len(fitting) - 1))]

    def draw_any(self, data: st.DataObject) -> Any:
        """A handle of any kind, every kind that there is with the same chance."""
        present = [kind for kind in HANDLES if self.has(kind)]
        return self.draw(data, data.draw(st.sampled_from(present)))

    def some_indexes(self, data: st.DataObject, handle: Handle) -> list[int]:
        if not len(handle) or data.draw(st.booleans(), "all"):
            return list(range(len(handle)))
        return data.draw(st.lists(st.integers(0, len(handle) - 1), unique=True, max_size=len(handle)))

    def idle_keys(self) -> list[ContentKey]:
        """Key of every inactive block of the pool."""
        return [facts.key for facts in self.pool.registered() if not facts.refs]

    def families_went_whole(self, before: list[ContentKey]) -> None:
        """No inactive block is left of which a relative was evicted."""
        assert all(count == Counter(before)[key] for key, count in Counter(self.idle_keys()).items())

    def has(self, *kinds: type[Any]) -> bool:
        return any(isinstance(handle, kinds) for handle in self.handles)

    def clear_now(self) -> None:
        self.cut_off()
        self.sweep_rows(self.pool.capacity)

    def cut_off(self) -> None:
        report, expected = self.pool.cut(), self.model.cut()
        assert (report.removed, report.pinned, report.in_flight) == expected
        self.tried["cut within a sweep"] += self.pool.unswept > report.removed + report.pinned

    def sweep_rows(self, most: int) -> None:
        expected = self.model.next_rows(most)
        swept = self.pool.sweep(most)
        assert swept.names == [(name[1], name[0]) for name in map(self.model.name_of, expected)]
        self.tried["swept in parts"] += bool(expected) and self.pool.unswept > 0
        self.keep(swept.doomed, self.model.sweep(expected))

    # --- after every step ---
    @invariant()
    def rows_agree_with_the_model(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check_integrity()
        for number, row in self.model.rows.items():
            state = self.pool.state(BlockId(number))
            assert (state, self.pool.generation(BlockId(number))) == (row.state, row.generation)
            if state in (RowState.HELD, RowState.INACTIVE):
                facts = self.pool.facts([BlockId(number)])[0]
                assert (facts.refs, (facts.group, facts.key)) == (row.refs, row.name)
                assert sorted(self.pool.relatives(BlockId(number))) == sorted(self.model.family(number)[1:])
        assert self.pool.unswept == len(self.model.cut_off)
        standing = [row for row in self.policy if self.pool.state(row) is RowState.INACTIVE]
        assert standing == self.model.victims
        assert len(self.policy) == len(standing) + sum(
            self.pool.state(BlockId(row)) is RowState.AWAIT_FREE for row in self.model.cut_off
        )
        assert self.pool.duplicates == sum(row.primary is not None for row in self.model.rows.values())
        assert self.pool.relatives_left == self.model.relatives_left

    @invariant()
    def every_change_is_legal(self) -> None:
        if not hasattr(self, "pool"):
            return
        states = [self.pool.state(BlockId(row)) for row in range(self.pool.capacity)]
        changes = {pair for pair in zip(self.states, states, strict=True) if pair[0] is not pair[1]}
        assert changes <= TRANSITIONS
        self.states = states

    @invariant()
    def no_row_is_lost_or_made(self) -> None:
        if not hasattr(self, "pool"):
            return
        pool = self.pool
        taken = pool.mutable + pool.complete + pool.held + pool.await_free + pool.abandoned
        assert pool.free + pool.inactive + taken == pool.capacity

    def teardown(self) -> None:
        for handle in getattr(self, "handles", []):
            handle.release()
        if hasattr(self, "pool"):
            self.tried["relative left"] += self.pool.relatives_left
            self.pool.drain_doomed().release()
            while self.pool.unswept:
                self.pool.sweep(2).doomed.release()
            self.pool.check_integrity()
            assert self.pool.available == self.pool.capacity - self.model.count(RowState.ABANDONED)
