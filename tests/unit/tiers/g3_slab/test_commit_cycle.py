"""The order of payloads, syncs and header pages."""

import math

from blockyard.core.vocabulary import BlockId, ItemStatus
from blockyard.tiers.g3_slab.commit_cycle import CommitBatch, CommitCycle, PageChange


def changes(*slots: int, arrived: float = 0.0, payload_bytes: int = 10) -> list[PageChange]:
    batch = CommitBatch(len(slots))
    return [PageChange(BlockId(slot), b"", payload_bytes, arrived, batch, i) for i, slot in enumerate(slots)]


def cycle() -> CommitCycle:
    return CommitCycle(interval_seconds=1.0, max_bytes=100)


def run(one: CommitCycle) -> tuple[list[PageChange], list[PageChange]]:
    """One whole cycle: the pages it wrote, and what is durable after it."""
    pages = one.take_pages()
    one.begin_sync()
    return pages, one.end_sync()


def test_a_ready_page_follows_the_sync_that_follows_its_payload() -> None:
    one, stored = cycle(), changes(3)
    one.payloads_written(stored)
    assert run(one) == ([], [])
    assert run(one) == (stored, stored)
    assert one.is_idle


def test_a_payload_that_ends_during_a_sync_waits_for_the_next_one() -> None:
    one, early, late = cycle(), changes(3), changes(4)
    one.payloads_written(early)
    one.begin_sync()
    one.payloads_written(late)
    one.end_sync()
    assert one.take_pages() == early
    one.begin_sync()
    assert one.end_sync() == early
    assert run(one) == (late, late)


def test_a_freed_page_needs_one_sync() -> None:
    one, freed = cycle(), changes(5, payload_bytes=0)
    one.retired(freed)
    assert run(one) == (freed, freed)


def test_pages_go_out_in_the_order_of_their_slots() -> None:
    one, stored, freed = cycle(), changes(9, 1, 5), changes(3, payload_bytes=0)
    one.payloads_written(stored)
    run(one)
    one.retired(freed)
    assert [change.slot for change in one.take_pages()] == [1, 3, 5, 9]


def test_a_page_that_could_not_be_written_is_not_durable() -> None:
    one, stored = cycle(), changes(1, 2)
    one.payloads_written(stored)
    run(one)
    one.take_pages()
    one.drop(stored[:1])
    one.begin_sync()
    assert one.end_sync() == stored[1:]


def test_a_cycle_begins_by_age_or_by_bytes() -> None:
    one = cycle()
    assert math.isinf(one.due_in(5.0))
    one.payloads_written(changes(1, arrived=5.0, payload_bytes=60))
    assert one.due_in(5.25) == 0.75
    assert one.due_in(7.0) == 0.0
    one.payloads_written(changes(2, arrived=5.0, payload_bytes=60))
    assert one.due_in(5.25) == 0.0


def test_what_was_synced_does_not_wait_for_another_interval() -> None:
    one = cycle()
    one.payloads_written(changes(1, arrived=5.0))
    run(one)
    assert one.due_in(6.0) == 0.0


def test_a_sync_with_nothing_to_cover_is_not_needed() -> None:
    one = cycle()
    one.begin_sync()
    assert not one.needs_sync
    one.payloads_written(changes(1))
    one.begin_sync()
    assert one.needs_sync


def test_abandoning_returns_everything_once() -> None:
    one, first, second, freed = cycle(), changes(1), changes(2), changes(3, payload_bytes=0)
    one.payloads_written(first)
    run(one)
    one.payloads_written(second)
    one.retired(freed)
    one.take_pages()
    one.begin_sync()
    assert sorted(change.slot for change in one.abandon()) == [1, 2, 3]
    assert one.is_idle
    assert one.abandon() == []


def test_a_batch_resolves_when_its_last_change_is_settled() -> None:
    first, second = changes(1, 2)
    second.settle(ItemStatus.OK)
    assert not first.batch.done.done()
    first.settle(ItemStatus.NO_SPACE)
    assert first.batch.done.result() == [ItemStatus.NO_SPACE, ItemStatus.OK]
    assert not first.batch.done.cancel()
