"""Blocks of one request from step to step, as an engine keeps them in handles of a pool. Numbers are KVBM's behaviours.

Which tokens a step computes is the engine's to say, and no class here schedules any. What handles and names owe it is
here: excess blocks go back, a step that is not taken gives back exactly its own, and a refused call changes nothing.
"""

import pytest
from tests.unit.core.state_of import pool_state

from blockyard.core.errors import HandleConsumedError, KernelError, OutOfBlocksError
from blockyard.core.hashing import ChainHasher
from blockyard.core.identity import SequenceScope
from blockyard.core.vocabulary import IdentityDigest
from blockyard.testing.blocks import chain, columns, make_pool, store


@pytest.mark.parametrize(("accepted", "kept"), [(0, 0), (3, 3), (5, 5)])
def test_42_blocks_of_a_draft_that_were_not_needed_go_back_last_first(accepted: int, kept: int) -> None:
    pool = make_pool(8)
    with pool.allocate(5).blocks as draft:
        rows = draft.ids
        for index in reversed(range(accepted, 5)):
            draft.split([index]).release()
        assert draft.ids == rows[:kept]
        assert (pool.mutable, pool.free) == (kept, 8 - kept)
        with pool.allocate(8 - kept).blocks as others:
            # First come the rows that were free all the time, then those of the draft, its last one first.
            assert others.ids == (5, 6, 7, *reversed(rows[kept:]))


def test_42_more_blocks_than_were_drafted_cannot_be_accepted() -> None:
    pool = make_pool(8)
    with pool.allocate(5).blocks as draft:
        before = pool_state(pool)
        with pytest.raises(KernelError, match="outside"):
            draft.split(range(6))
        assert (len(draft), pool_state(pool)) == (5, before)


def test_43_a_step_that_is_not_taken_gives_back_exactly_the_blocks_of_its_own() -> None:
    pool = make_pool(8)
    with pool.allocate(2).blocks as earlier, pool.allocate(1).blocks as other:
        step = pool.allocate(3).blocks
        taken = step.ids
        step.release()
        assert (len(earlier), len(other), pool.mutable) == (2, 1, 3)
        assert [pool.state(row).name for row in taken] == ["FREE"] * 3
        with pytest.raises(HandleConsumedError):
            step.release()


def test_43_a_request_that_cannot_get_all_its_blocks_back_holds_none() -> None:
    pool = make_pool(4)
    run = chain("request", 3)
    store(pool, run)
    with pool.allocate(1).blocks:
        before = pool_state(pool)
        with pool.match(run.slice(0, 2)) as prefix, pytest.raises(OutOfBlocksError):
            pool.allocate(2)
        assert len(prefix) == 0
        assert pool_state(pool)["states"] == before["states"]


def test_44_names_for_more_blocks_than_were_granted_are_refused_and_change_nothing() -> None:
    pool = make_pool(4)
    with pool.allocate(2).blocks as granted:
        before = pool_state(pool)
        with pytest.raises(KernelError) as caught:
            granted.stage(columns(chain("request", 3)))
        assert caught.value.fields == {"columns": 3, "blocks": 2}
        assert (len(granted), pool_state(pool)) == (2, before)


@pytest.mark.parametrize("chunks", [(8,), (4, 4), (3, 1, 4), (5, 3)])
def test_40_a_prompt_in_chunks_has_the_names_of_the_whole_and_each_block_gets_its_name_once(
    chunks: tuple[int, ...],
) -> None:
    identity, tokens = IdentityDigest(bytes(32)), list(range(8))
    whole = ChainHasher(identity, SequenceScope(), 4).append(tokens)
    growing, named, done = ChainHasher(identity, SequenceScope(), 4), b"", 0
    for chunk in chunks:
        named += growing.append(tokens[done : done + chunk]).digests
        done += chunk
        assert len(named) == done // 4 * 32
    assert named == whole.digests


def test_41_a_token_behind_the_last_whole_block_has_no_name_until_its_block_is_full() -> None:
    growing = ChainHasher(IdentityDigest(bytes(32)), SequenceScope(), 4)
    assert len(growing.append(range(4))) == 1
    assert [len(growing.append([token])) for token in range(4)] == [0, 0, 0, 1]
    assert (growing.blocks, growing.tokens) == (2, 8)
