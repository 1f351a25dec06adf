"""Behaviours that users of NVIDIA's KVBM pools rely on: grants, sharing of blocks, and blocks that leave on release.

Numbers are those of KVBM's behaviours.
"""

from collections.abc import Callable, Iterator, Sequence

import pytest
from tests.unit.core.state_of import pool_state

from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import BlocksInUseError, BlockStateError, KernelError, OutOfBlocksError
from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.handles import CompleteBlocks, ImmutableBlocks, MutableBlocks
from blockyard.core.pool import BlockPool
from blockyard.core.states import DuplicatePolicy, RowState
from blockyard.core.vocabulary import BlockId, GroupId
from blockyard.testing.blocks import chain, columns, complete, hold, key, make_pool, store

RUN = chain("a", 1)
ALLOW = DuplicatePolicy.ALLOW


# --- grants -------------------------------------------------------------------------------------------------------
def test_1_every_row_of_an_unused_pool_can_be_granted_once_and_no_more() -> None:
    """N rows, nothing held: N distinct ones are granted, one more is refused and changes nothing."""
    pool = make_pool(4)
    assert pool.available == 4
    with pool.allocate(4).blocks as blocks:
        assert sorted(blocks.ids) == [0, 1, 2, 3]
        with pytest.raises(OutOfBlocksError):
            pool.allocate(1)
        assert pool.mutable == 4


def test_2_no_rows_can_be_asked_for_even_when_full() -> None:
    """A grant of nothing succeeds when nothing is left."""
    with (pool := make_pool(1)).allocate(1).blocks:
        assert len(pool.allocate(0).blocks) == 0


def test_3_eviction_names_its_victims_and_a_refused_grant_evicts_nothing() -> None:
    """Three rows free and two inactive: five can be granted, six cannot, and then both blocks are still found."""
    pool = make_pool(5)
    run = chain("b", 2)
    rows = store(pool, run)
    with pytest.raises(OutOfBlocksError):
        pool.allocate(6)
    assert pool.find(run) == list(rows)
    with (granted := pool.allocate(5)).blocks:
        assert [facts.key for facts in granted.evicted] == [run.key(1), run.key(0)]


def test_4_free_rows_go_before_any_eviction_in_the_order_of_their_return() -> None:
    """What came back first is granted first, and no block leaves while a row is free."""
    pool = make_pool(4)
    store(pool, RUN)
    first, second, third = (pool.allocate(1).blocks for _ in range(3))
    for blocks in (second, third, first):
        blocks.release()
    with pool.allocate(3).blocks as blocks:
        assert blocks.ids == (2, 3, 1)
    assert pool.inactive == 1


def test_5_only_registered_blocks_stay_when_handles_end() -> None:
    """Of 24 rows 8 end while written, 8 complete, 8 registered: 16 are free, 8 inactive, all 24 available."""
    pool = make_pool(24)
    pool.allocate(8).blocks.release()
    complete(pool, chain("b", 8)).release()
    store(pool, chain("c", 8))
    assert (pool.free, pool.inactive, pool.available) == (16, 8, 24)


def test_6_a_complete_block_can_be_written_again() -> None:
    """Reset gives a writable block on the same row and grant, which can be staged once more."""
    pool = make_pool(1)
    staged = complete(pool, RUN)
    grant = staged.generations
    with staged.reset() as again:
        assert (again.ids, again.generations) == ((0,), grant)
        again.stage(columns(chain("b", 1))).release()


def test_7_columns_of_a_wrong_size_leave_the_blocks_with_their_writer() -> None:
    """A refused naming keeps the handle armed; its rows are available after its end."""
    pool = make_pool(2)
    with pool.allocate(2).blocks as blocks:
        with pytest.raises(KernelError) as refused:
            blocks.stage(columns(RUN))
        assert refused.value.fields == {"columns": 1, "blocks": 2}
        assert len(blocks) == 2
    assert pool.available == 2


class BrokenPolicy:
    """LRU that does not keep its promise: of the rows that it takes out it answers with others, or fewer."""

    def __init__(self, columns: RowColumns, answer: Callable[[list[BlockId]], list[BlockId]]) -> None:
        self.inner = LruPolicy(columns)
        self.answer = answer

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[BlockId]:
        return iter(self.inner)

    def take(self, count: int) -> list[BlockId]:
        rows = self.inner.take(count)
        given = self.answer(rows)
        self.inner.put_back([row for row in rows if row not in given])
        return given

    def touch(self, blocks: Sequence[BlockId]) -> None:
        self.inner.touch(blocks)

    def insert(self, blocks: Sequence[BlockId]) -> None:
        self.inner.insert(blocks)

    def remove(self, blocks: Sequence[BlockId]) -> None:
        self.inner.remove(blocks)

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        self.inner.put_back(blocks)

    def forget(self, blocks: Sequence[BlockId]) -> None:
        self.inner.forget(blocks)


@pytest.mark.parametrize("given", [0, 1, 2])
def test_8_a_policy_that_gives_fewer_victims_than_promised_fails_the_grant_and_keeps_its_order(given: int) -> None:
    pool = make_pool(4, lambda columns: BrokenPolicy(columns, lambda rows: rows[:given]))
    store(pool, chain("a", 3))
    before = pool_state(pool)
    with pytest.raises(OutOfBlocksError) as caught:
        pool.allocate(4)
    assert caught.value.fields == {"asked": 3, "given": given}
    assert pool_state(pool) == before
    pool.check_integrity()


# --- reset --------------------------------------------------------------------------------------------------------
def test_10_resetting_an_unused_pool_forgets_every_block() -> None:
    """With no handle left all rows are free and no key is present."""
    pool = make_pool(3)
    run = chain("b", 2)
    store(pool, run)
    assert [facts.key for facts in pool.reset_inactive()] == [run.key(1), run.key(0)]
    assert (pool.free, pool.find(run)) == (3, [None, None])
    assert pool.registry.holds(pool.tier, run.keys(), GroupId(0)) == [False, False]


Make = Callable[[BlockPool, ChainRun], MutableBlocks | CompleteBlocks | ImmutableBlocks]
MAKERS: list[Make] = [hold, complete, lambda pool, run: pool.allocate(len(run)).blocks]


@pytest.mark.parametrize("make", MAKERS, ids=["held", "complete", "mutable"])
def test_10_a_pool_in_use_is_not_reset(make: Make) -> None:
    """With one row in somebody's hands the call says how many are missing and forgets nothing."""
    pool = make_pool(3)
    store(pool, chain("b", 1))
    with make(pool, RUN):
        with pytest.raises(BlocksInUseError) as refused:
            pool.reset_inactive()
        assert refused.value.fields == {"blocks": 3, "unused": 2, "in_use": 1}
        assert pool.inactive == 1


# --- one key twice ------------------------------------------------------------------------------------------------
def test_11_allowed_duplicates_have_rows_of_their_own() -> None:
    """Two handles, two rows, one key; the end of the second frees its row and the key stays."""
    pool = make_pool(2, duplicates=ALLOW)
    first, second = hold(pool, RUN), hold(pool, RUN)
    assert (first.ids, second.ids, first.keys) == ((0,), (1,), second.keys)
    assert pool.duplicates == 1
    pool.check_integrity()
    second.release()
    assert (pool.state(BlockId(1)), pool.find(RUN)) == (RowState.FREE, [0])
    first.release()
    assert pool.inactive == 1


def test_12_a_rejected_duplicate_shares_the_row_of_the_first() -> None:
    """The second handle has the row of the first, and the new row is free."""
    pool = make_pool(2)
    first = hold(pool, RUN)
    again = complete(pool, RUN).register()
    assert (again.blocks.ids, again.duplicates, pool.free) == (first.ids, 1, 1)
    first.release()
    assert pool.held == 1
    again.blocks.release()
    assert pool.inactive == 1


def test_13_a_duplicate_keeps_its_primary() -> None:
    """The first handle ends before the second: the key stays found; then the duplicate is free."""
    pool = make_pool(2, duplicates=ALLOW)
    first, second = hold(pool, RUN), hold(pool, RUN)
    first.release()
    with pytest.raises(OutOfBlocksError):
        pool.allocate(1)
    assert pool.find(RUN) == [0]
    second.release()
    assert (pool.state(BlockId(0)), pool.state(BlockId(1))) == (RowState.INACTIVE, RowState.FREE)
    pool.check_integrity()


@pytest.mark.parametrize(("policy", "rows"), [(ALLOW, (0, 1, 2)), (DuplicatePolicy.REJECT, (0, 1, 0))])
def test_14_a_batch_keeps_its_order_with_repeats_inside(policy: DuplicatePolicy, rows: tuple[int, ...]) -> None:
    """The third of a batch has the key of the first; a batch of nothing registers nothing."""
    pool = make_pool(3, duplicates=policy)
    names = columns(RUN)
    repeated = type(names)(
        keys=[*names.keys, key("b"), *names.keys],
        parents=[*names.parents] * 3,
        positions=[0, 0, 0],
        identity=names.identity,
    )
    with pool.allocate(3).blocks.stage(repeated).register().blocks as blocks:
        assert (blocks.ids, blocks.keys) == (rows, (key("a"), key("b"), key("a")))
    pool.check_integrity()
    assert len(complete(pool, chain("none", 0)).register().blocks) == 0


@pytest.mark.parametrize(("policy", "row"), [(ALLOW, 1), (DuplicatePolicy.REJECT, 0)])
def test_15_registering_the_key_of_an_unused_block_wakes_it(policy: DuplicatePolicy, row: int) -> None:
    """Allowed: the new row is a duplicate of the inactive one, which is held again. Rejected: the old row is given."""
    pool = make_pool(2, duplicates=policy)
    store(pool, RUN)
    with hold(pool, RUN) as blocks:
        assert blocks.ids == (row,)
        assert pool.state(BlockId(0)) is RowState.HELD
    assert (pool.inactive, pool.free) == (1, 1)


def test_a_duplicate_cannot_be_condemned_out_of_the_index() -> None:
    """A damaged duplicate leaves nothing, as it was never found; its row awaits its header after the last use."""
    pool = make_pool(2, duplicates=ALLOW)
    first, second = hold(pool, RUN), hold(pool, RUN)
    assert pool.condemn(BlockId(1), second.generations[0]).facts == ()
    assert pool.find(RUN) == [0]
    second.release()
    assert pool.state(BlockId(1)) is RowState.AWAIT_FREE
    pool.drain_doomed().release()
    first.release()
    pool.check_integrity()


# --- weak blocks --------------------------------------------------------------------------------------------------
def test_16_weak_blocks_come_back_until_they_are_evicted() -> None:
    """While held: the same row; after the last end: the same row, woken; after eviction: nothing."""
    pool = make_pool(1)
    held = hold(pool, RUN)
    weak = held.downgrade()
    for end in (held.release, lambda: None):
        upgraded = weak.upgrade()
        assert upgraded is not None
        assert upgraded.ids == (0,)
        upgraded.release()
        end()
    pool.evict(1).release()
    assert weak.upgrade() is None


# --- reset on release ---------------------------------------------------------------------------------------------
def resetting(pool: BlockPool, default: bool) -> None:
    """Register the run and say that it does the other thing than the pool's default at its end."""
    with hold(pool, RUN) as blocks:
        blocks.reset_on_release(not default)


def test_19_a_block_that_is_not_kept_leaves_at_its_last_release() -> None:
    """The last end frees the row and the key is gone; what left is named."""
    pool = make_pool(1)
    blocks = hold(pool, RUN)
    blocks.reset_on_release(True)
    assert pool.find(RUN) == [0]
    assert [facts.key for facts in blocks.release()] == [RUN.key(0)]
    assert (pool.free, pool.find(RUN)) == (1, [None])
    pool.check_integrity()


def test_19_a_clone_keeps_a_block_that_is_to_leave() -> None:
    """As long as one clone lives the block is found and can be shared."""
    pool = make_pool(1)
    blocks = hold(pool, RUN)
    twin = blocks.clone()
    blocks.reset_on_release(True)
    assert blocks.release() == ()
    with pool.match(RUN) as matched:
        assert len(matched) == 1
    assert len(twin.release()) == 1


@pytest.mark.parametrize(("said", "left"), [([True, False], 0), ([False, True], 1)])
def test_19_the_last_word_on_the_end_of_a_block_counts(said: list[bool], left: int) -> None:
    """Two clones disagree: what was said last happens."""
    pool = make_pool(1)
    blocks = hold(pool, RUN)
    twin = blocks.clone()
    for handle, reset in zip((blocks, twin), said, strict=True):
        handle.reset_on_release(reset)
    twin.release()
    assert len(blocks.release()) == left


def test_19_what_was_said_of_a_block_outlives_its_rest() -> None:
    """In a pool that resets, a block that is to stay rests, is found again, and stays again."""
    pool = make_pool(1, reset_on_release=True)
    resetting(pool, default=True)
    assert pool.inactive == 1
    pool.match(RUN).release()
    assert pool.inactive == 1


def test_19_what_was_said_of_a_block_ends_with_it() -> None:
    """After eviction the row follows the default of the pool again."""
    pool = make_pool(1, reset_on_release=True)
    resetting(pool, default=True)
    pool.allocate(1).blocks.release()
    assert len(hold(pool, chain("b", 1)).release()) == 1


def test_what_is_said_of_a_duplicate_means_nothing() -> None:
    """The row of a duplicate is free after its end, and its primary stays."""
    pool = make_pool(2, duplicates=ALLOW)
    first, second = hold(pool, RUN), hold(pool, RUN)
    second.reset_on_release(True)
    assert second.release() == ()
    assert first.release() == ()
    assert (pool.inactive, pool.free) == (1, 1)


# --- shards -------------------------------------------------------------------------------------------------------
def test_a_block_is_named_only_when_all_its_shards_are_written() -> None:
    """Marks of all rows and of single ones add up; the refusal says how far the block is."""
    pool = make_pool(3, shards=3)
    with pool.allocate(3).blocks as blocks:
        blocks.written(0)
        blocks.written(2, [0, 1])
        blocks.written(1, [1])
        with pytest.raises(BlockStateError) as refused:
            blocks.stage(columns(chain("a", 3)))
        assert refused.value.fields == {"block": 0, "written": 2, "shards": 3}
        with blocks.stage(columns(chain("a", 3)), [1]).register().blocks as held:
            assert held.ids == (1,)
        part = blocks.split([0])
        part.written(1)
        part.stage(columns(RUN)).release()


def test_a_block_that_is_written_again_needs_all_its_shards_again() -> None:
    """Reset forgets what was written; marking twice is no error."""
    pool = make_pool(1, shards=2)
    blocks = pool.allocate(1).blocks
    for shard in (0, 1, 1):
        blocks.written(shard)
    with blocks.stage(columns(RUN)).reset() as again, pytest.raises(BlockStateError):
        again.stage(columns(RUN))


@pytest.mark.parametrize("shard", [-1, 2])
def test_unknown_shards_are_refused(shard: int) -> None:
    """A pool knows how many shards its blocks have."""
    with make_pool(1, shards=2).allocate(1).blocks as blocks, pytest.raises(KernelError) as refused:
        blocks.written(shard)
    assert refused.value.fields == {"shard": shard, "shards": 2}


# --- bad input ----------------------------------------------------------------------------------------------------
def test_negative_counts_are_refused() -> None:
    """Neither a grant nor an eviction can be of fewer than no rows; the count is told."""
    pool = make_pool(1)
    store(pool, RUN)
    for verb in (pool.allocate, pool.evict):
        with pytest.raises(KernelError) as refused:
            verb(-1)
        assert refused.value.fields == {"count": -1}
    assert pool.inactive == 1


def test_handles_act_in_their_own_pool_only() -> None:
    """No verb takes a handle; one of another pool of the same shape changes nothing here."""
    ours, other = make_pool(2), make_pool(2)
    store(ours, RUN)
    foreign = hold(other, RUN)
    weak = foreign.downgrade()
    foreign.release()
    upgraded = weak.upgrade()
    assert upgraded is not None
    assert (ours.held, other.held) == (0, 1)
    upgraded.release()
    ours.check_integrity()
