"""A pool whose owner is several threads that take turns by a lock. Numbers are those of KVBM's behaviours.

The pool has no lock of its own. Where a race counts, the second thread announces itself while the first is in the
middle of a change, so both are under way at once in every run.
"""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier, Event, Lock
from types import TracebackType

import pytest

from blockyard.core.errors import OutOfBlocksError
from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.pool import BlockPool
from blockyard.core.vocabulary import BlockId
from blockyard.testing.blocks import chain, columns, complete, hold, make_pool, store

RUN = chain("a", 1)
PATIENCE_SECONDS = 10


class AnnouncedLock:
    """A lock that tells when a second thread wants it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.wanted = Event()

    def __enter__(self) -> None:
        if self._lock.locked():
            self.wanted.set()
        assert self._lock.acquire(timeout=PATIENCE_SECONDS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


class GatedPolicy(LruPolicy):  # type: ignore[misc]
    """LRU that stops once, in the middle of a change of the table, until its gate lets it go on."""

    def __init__(self, columns: RowColumns) -> None:
        super().__init__(columns)
        self.gate: Callable[[], object] | None = None

    def _stop(self) -> None:
        if (gate := self.gate) is not None:
            self.gate = None
            gate()

    def insert(self, blocks: Sequence[BlockId]) -> None:
        self._stop()
        super().insert(blocks)

    def remove(self, blocks: Sequence[BlockId]) -> None:
        self._stop()
        super().remove(blocks)

    def take(self, count: int) -> list[BlockId]:
        self._stop()
        return super().take(count)


def gated_pool(capacity: int, *, reset_on_release: bool = False) -> tuple[BlockPool, GatedPolicy]:
    made: list[GatedPolicy] = []

    def make(columns: RowColumns) -> GatedPolicy:
        made.append(GatedPolicy(columns))
        return made[0]

    pool = make_pool(capacity, make, reset_on_release=reset_on_release)
    return pool, made[0]


def race(policy: GatedPolicy, first: Callable[[], object], second: Callable[[], object]) -> None:
    """Both calls at once: the second thread wants the lock when the first is inside of the table."""
    lock, inside = AnnouncedLock(), Event()

    def stop_inside() -> None:
        inside.set()
        assert lock.wanted.wait(PATIENCE_SECONDS)

    def lead() -> None:
        with lock:
            policy.gate = stop_inside
            first()
        assert policy.gate is None, "the first call never got to the policy"

    def follow() -> None:
        assert inside.wait(PATIENCE_SECONDS)
        with lock:
            second()

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(lead), threads.submit(follow)]:
            done.result(2 * PATIENCE_SECONDS)


def test_9_eight_threads_hold_together_what_there_is_and_no_more_and_all_comes_back() -> None:
    """Turn by turn all hold their shares at once, no row in two hands, and each finds the pool empty."""
    pool, lock, together = make_pool(24), Lock(), Barrier(8)
    in_hands: set[BlockId] = set()

    def work(number: int) -> None:
        chance = random.Random(number)
        for turn in range(20):
            with lock:
                blocks = pool.allocate(3).blocks
                assert in_hands.isdisjoint(blocks.ids)
                in_hands.update(blocks.ids)
            together.wait(PATIENCE_SECONDS)
            with lock, pytest.raises(OutOfBlocksError):
                pool.allocate(1)
            assert len(in_hands) == pool.mutable == 24
            together.wait(PATIENCE_SECONDS)
            with lock:
                in_hands.difference_update(blocks.ids)
                if chance.random() < 0.5:
                    blocks.stage(columns(chain(f"{number} {turn}", 3))).register().blocks.release()
                else:
                    blocks.release()
                assert pool.mutable + pool.available == pool.capacity
            together.wait(PATIENCE_SECONDS)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert (pool.mutable, pool.held, pool.available) == (0, 0, 24)
    pool.check_integrity()


@pytest.mark.parametrize("eviction_first", [True, False])
def test_17_a_key_that_is_evicted_and_registered_at_once_is_present_in_the_end(eviction_first: bool) -> None:
    pool, policy = gated_pool(3)
    store(pool, RUN)
    staged = complete(pool, RUN)
    held = ExitStack()

    def evict() -> None:
        pool.evict(1).release()

    def register() -> None:
        held.enter_context(staged.register().blocks)

    race(policy, *((evict, register) if eviction_first else (register, evict)))
    assert pool.find(RUN) == [1 if eviction_first else 0]
    assert (pool.held, pool.inactive, pool.free) == (1, 0, 2)
    pool.check_integrity()
    held.close()


@pytest.mark.parametrize("drop_first", [True, False])
@pytest.mark.parametrize("stays", [True, False])
def test_18_a_lookup_beside_the_last_drop_gets_the_block_or_nothing(drop_first: bool, stays: bool) -> None:
    pool, policy = gated_pool(2)
    matched = ExitStack()
    found: list[int] = []
    run = chain("b", 2)
    last = hold(pool, run)
    last.split([1]).release()
    last.reset_on_release(not stays)

    def drop() -> None:
        # The tail, which the policy holds, is used once more, so that the policy is reached also where the head leaves.
        with pool.match(run):
            last.release()

    def look_up() -> None:
        found.append(len(matched.enter_context(pool.match(run))))

    race(policy, *((drop, look_up) if drop_first else (look_up, drop)))
    assert found == [2 if stays or not drop_first else 0]
    assert pool.held + pool.available == pool.capacity == 2
    pool.check_integrity()
    matched.close()
    assert pool.find(run) == ([0, 1] if stays else [None, 1])
    pool.check_integrity()
