"""The client's memory of what the engine holds: announced again as runs that a call can carry."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from blockyard.connectors.g1_set import G1Set, RegisteredRun
from blockyard.core.chain_run import ChainRun
from blockyard.core.vocabulary import DEFAULT_TENANT, ROOT_KEY, EngineBlockId, GroupId, Guard, TenantDigest, key_of


def chain(name: str, length: int) -> ChainRun:
    return ChainRun(b"".join(hashlib.sha256(f"{name}/{index}".encode()).digest() for index in range(length)))


def blocks(first: int, count: int) -> tuple[EngineBlockId, ...]:
    return tuple(EngineBlockId(block) for block in range(first, first + count))


def rows_of(
    run: ChainRun,
    tenant: TenantDigest,
    pages: tuple[EngineBlockId, ...],
    *,
    group: int = 0,
    guard: int = 1,
) -> RegisteredRun:
    return RegisteredRun(run, tenant, GroupId(group), pages, (Guard(guard),) * len(pages))


def handed_out(held: G1Set, limit: int = 8) -> list[RegisteredRun]:
    """The whole set, run by run."""
    held.announce_all()
    return list(iter(lambda: held.next_run(limit), None))


def test_a_run_comes_back_as_it_was_registered() -> None:
    held = G1Set()
    registered = rows_of(chain("a", 5), DEFAULT_TENANT, blocks(10, 5))
    held.add(registered)
    assert list(handed_out(held)) == [registered]


def test_a_discarded_block_splits_its_run() -> None:
    held = G1Set()
    run = chain("a", 5)
    held.add(rows_of(run, DEFAULT_TENANT, blocks(0, 5)))
    held.discard([EngineBlockId(2), EngineBlockId(77)])
    assert [part.run for part in handed_out(held)] == [run.slice(0, 2), run.slice(3, 5)]


def test_a_block_that_takes_a_new_name_loses_the_old_one() -> None:
    held = G1Set()
    held.add(rows_of(chain("a", 1), DEFAULT_TENANT, blocks(0, 1)))
    held.add(rows_of(chain("b", 1), DEFAULT_TENANT, blocks(0, 1)))
    assert [part.run for part in handed_out(held)] == [chain("b", 1)]


def test_tenants_are_never_mixed_in_one_run() -> None:
    held = G1Set()
    run = chain("a", 4)
    other = TenantDigest(b"t" * 16)
    held.add(rows_of(run.slice(0, 2), DEFAULT_TENANT, blocks(0, 2)))
    held.add(rows_of(run.slice(2, 4), other, blocks(2, 2)))
    assert [(len(part.run), part.tenant) for part in handed_out(held)] == [(2, DEFAULT_TENANT), (2, other)]


def test_what_was_registered_since_is_not_handed_out_again() -> None:
    held = G1Set()
    held.add(rows_of(chain("a", 3), DEFAULT_TENANT, blocks(0, 3)))
    held.announce_all()
    held.add(rows_of(chain("b", 1), DEFAULT_TENANT, blocks(1, 1)))
    held.discard(blocks(2, 1))
    part = held.next_run(8)
    assert part is not None
    assert part.pages == blocks(0, 1)
    assert held.next_run(8) is None


def test_only_what_still_has_the_withdrawn_name_leaves() -> None:
    held = G1Set()
    withdrawn = rows_of(chain("a", 2), DEFAULT_TENANT, blocks(0, 2))
    held.add(withdrawn)
    held.add(rows_of(chain("b", 1), DEFAULT_TENANT, blocks(1, 1)))
    held.withdraw(withdrawn)
    assert [part.run for part in handed_out(held)] == [chain("b", 1)]


def test_a_row_of_several_blocks_is_gone_with_any_of_them() -> None:
    held = G1Set()
    run = chain("a", 3)
    held.add(rows_of(run, DEFAULT_TENANT, blocks(0, 12)))
    held.discard([EngineBlockId(6)])
    assert [(part.run, part.pages) for part in handed_out(held)] == [
        (run.slice(0, 1), blocks(0, 4)),
        (run.slice(2, 3), blocks(8, 4)),
    ]
    assert held.registered(blocks(3, 5)) == set(blocks(3, 1))


def test_a_row_that_takes_one_block_of_another_row_ends_it() -> None:
    held = G1Set()
    held.add(rows_of(chain("a", 1), DEFAULT_TENANT, blocks(0, 4)))
    held.add(rows_of(chain("b", 1), DEFAULT_TENANT, blocks(3, 4)))
    assert [part.run for part in handed_out(held)] == [chain("b", 1)]
    assert not held.registered(blocks(0, 3))


def test_groups_are_never_mixed_in_one_run() -> None:
    held = G1Set()
    run = chain("a", 2)
    held.add(rows_of(run.slice(0, 1), DEFAULT_TENANT, blocks(0, 1)))
    held.add(rows_of(run.slice(1, 2), DEFAULT_TENANT, blocks(1, 1), group=1))
    assert [part.group for part in handed_out(held)] == [GroupId(0), GroupId(1)]


def test_rows_are_announced_with_the_guards_of_their_registration() -> None:
    held = G1Set()
    held.add(rows_of(chain("a", 1), DEFAULT_TENANT, blocks(0, 2), guard=5))
    held.add(rows_of(chain("b", 1), DEFAULT_TENANT, blocks(2, 2), guard=9))
    assert [part.guards for part in handed_out(held)] == [(Guard(5), Guard(5)), (Guard(9), Guard(9))]
    assert held.noted_guards(blocks(0, 5)) == ([0, 1, 2, 3], [5, 5, 9, 9])
    assert held.noted_guards(blocks(3, 2)) == ([3], [9]), "of a row in part, what was asked for"


def test_a_run_that_is_handed_out_has_no_more_pages_than_a_call_carries() -> None:
    held = G1Set()
    run = chain("a", 5)
    held.add(rows_of(run, DEFAULT_TENANT, blocks(0, 20)))
    held.announce_all()
    parts = list(iter(lambda: held.next_run(8, 9), None))
    assert [part.run for part in parts] == [run.slice(0, 2), run.slice(2, 4), run.slice(4, 5)]
    held.announce_all()
    assert [len(part.run) for part in iter(lambda: held.next_run(8, 3), None)] == [1] * 5


@given(st.lists(st.integers(1, 6), max_size=6), st.integers(1, 4), st.sets(st.integers(0, 40)))
def test_runs_cover_exactly_what_is_held(lengths: list[int], limit: int, gone: set[int]) -> None:
    held = G1Set()
    expected: dict[int, tuple[bytes, bytes, int]] = {}
    first = 0
    for number, length in enumerate(lengths):
        run = chain(str(number), length)
        held.add(rows_of(run, DEFAULT_TENANT, blocks(first, length)))
        expected |= {first + index: (run.key(index), run.parent_of(index), index) for index in range(length)}
        first += length
    held.discard([EngineBlockId(block) for block in gone])
    found: dict[int, tuple[bytes, bytes, int]] = {}
    for part in handed_out(held, limit):
        assert 1 <= len(part.run) <= limit
        for index, block in enumerate(part.pages):
            run = part.run
            found[block] = (key_of(run.digest(index)), run.parent_of(index), run.first_position + index)
    assert found == {block: entry for block, entry in expected.items() if block not in gone}
    assert len(held) == len(found)
    assert all((position == 0) == (parent == ROOT_KEY) for _, parent, position in found.values())
