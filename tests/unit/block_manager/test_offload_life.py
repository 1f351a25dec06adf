"""Copies into engine memory that do not end: their worker is ended, its death is proven, and the loads end."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from tests.unit.block_manager.rank_kit import ranks_of
from tests.unit.block_manager.world import OW, Engine, MakeWorld, World

from blockyard.core.errors import BlockyardError, UnavailableError, UnsupportedOperationError
from blockyard.core.overdue_jobs import HEARING_SECONDS
from blockyard.core.vocabulary import Epoch, ItemStatus, LoadId, Tier
from blockyard.testing.blocks import chain
from blockyard_block_manager.engine_writes import engine_writes_settled
from blockyard_block_manager.manager_metrics import ManagerMetrics
from blockyard_block_manager.offload_life import OffloadLife

RUN = chain("a", 4)
TTL_SECONDS = 2.0
PATIENCE_SECONDS = 5.0
TICK_SECONDS = 0.5
STAGE_SECONDS = 10.0
"""Time of a load that ranks copy."""


@dataclass(eq=False)
class Connection:
    """A connection to a worker, which can be killed unless ``refusal`` says why not."""

    refusal: BlockyardError | None = None
    kills: int = 0

    def end_peer(self) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.kills += 1


@dataclass
class Watched:
    """A world whose offload-worker is watched."""

    world: World
    connection: Connection | None = field(default_factory=Connection)
    over: set[Epoch | None] = field(default_factory=set)
    """Lives that are over as their lock says."""

    def __post_init__(self) -> None:
        self.life = self.watch()

    def watch(self) -> OffloadLife:
        """As a life of the block-manager begins."""
        return OffloadLife(
            self.world.core,
            self,
            lambda epoch: epoch in self.over,
            self.world.clock,
            ManagerMetrics(self.world.metrics),
            patience_seconds=PATIENCE_SECONDS,
        )

    @property
    def epoch(self) -> Epoch:
        return self.world.workers[OW].epoch

    def reader(self) -> Engine:
        """An engine that may load what G2 holds."""
        self.world.connect("one").compute(RUN)
        self.world.settle()
        return self.world.connect("two")

    def stuck_load(self) -> LoadId:
        """A load whose copy was begun and does not go on."""
        load = self.reader().load(RUN, ttl_ms=int(TTL_SECONDS * 1_000))
        self.begin_copies()
        return load

    def begin_copies(self) -> None:
        self.world.submit(OW)
        while self.world.workers[OW].start() is not None:
            pass

    def pass_time(self, seconds: float) -> None:
        """Let time pass tick by tick; the worker takes messages and finishes nothing."""
        for _ in range(round(seconds / TICK_SECONDS)):
            self.world.tick(TICK_SECONDS)
            self.life.look()
            self.life.probe()

    def die(self) -> None:
        """The worker's process ends."""
        self.world.lose(OW)
        self.connection = None
        self.over |= {self.epoch, None}

    def killed(self, outcome: str = "killed") -> float:
        return self.world.counter("stuck_workers_total", outcome=outcome)

    def load_is_lost(self, load: LoadId) -> bool:
        outcome = self.world.outcomes.get(load)
        return outcome is not None and list(outcome.status) == [ItemStatus.UNKNOWN] * len(RUN)


@pytest.fixture
def watched(make_world: MakeWorld) -> Watched:
    return Watched(make_world(g4=False).ready())


def comes_back(watched: Watched, run: Callable[[], object] = lambda: None) -> None:
    """The next life of the worker serves, with ``run`` before it has attached."""
    world = watched.world
    world.restart(OW)
    watched.connection = Connection()
    run()
    world.attach()
    world.settle()
    load = world.engines["two"].load(RUN, first_block=16, request="next")
    world.settle()
    assert list(world.outcomes[load].sources) == [Tier.G2] * len(RUN)
    world.at_rest()


def test_a_stuck_copy_ends_its_worker_and_then_the_load(watched: Watched) -> None:
    load, connection = watched.stuck_load(), watched.connection
    assert connection is not None
    watched.pass_time(TTL_SECONDS + PATIENCE_SECONDS - TICK_SECONDS)
    assert connection.kills == 0
    watched.pass_time(2 * TICK_SECONDS)
    assert (connection.kills, watched.killed()) == (1, 1)
    watched.pass_time(PATIENCE_SECONDS)
    assert connection.kills == 1, "once"
    assert load not in watched.world.outcomes, "the kill itself settles nothing"
    watched.world.lose(OW)
    watched.pass_time(TICK_SECONDS)
    assert load not in watched.world.outcomes, "nor does the end of the channel"
    watched.die()
    watched.pass_time(TICK_SECONDS)
    assert watched.load_is_lost(load)
    comes_back(watched)


def test_a_copy_that_ends_in_time_costs_nobody_his_life(watched: Watched) -> None:
    load, connection = watched.stuck_load(), watched.connection
    assert connection is not None
    watched.pass_time(TTL_SECONDS + PATIENCE_SECONDS - TICK_SECONDS)
    watched.world.settle()
    watched.pass_time(2 * PATIENCE_SECONDS)
    assert connection.kills == 0
    assert list(watched.world.outcomes[load].status) == [ItemStatus.OK] * len(RUN)
    watched.world.at_rest()


def test_a_block_manager_that_stood_still_itself_kills_nobody(watched: Watched) -> None:
    """The worker has answered long ago, and the answer lies in the socket."""
    load = watched.stuck_load()
    watched.pass_time(TTL_SECONDS + PATIENCE_SECONDS - TICK_SECONDS)
    watched.world.workers[OW].work()
    watched.world.clock.advance(60)
    watched.pass_time(TICK_SECONDS)
    assert watched.killed() == 0
    watched.world.settle()
    assert list(watched.world.outcomes[load].status) == [ItemStatus.OK] * len(RUN)


def test_an_answer_that_comes_while_the_worker_is_being_ended_counts(watched: Watched) -> None:
    load = watched.stuck_load()
    watched.pass_time(TTL_SECONDS + PATIENCE_SECONDS + TICK_SECONDS)
    assert watched.killed() == 1
    watched.world.settle()
    assert list(watched.world.outcomes[load].status) == [ItemStatus.OK] * len(RUN)
    watched.die()
    watched.pass_time(TICK_SECONDS)
    comes_back(watched)


def test_an_answer_that_comes_after_the_death_was_proven_is_of_no_job(watched: Watched) -> None:
    load = watched.stuck_load()
    worker = watched.world.workers[OW]
    watched.die()
    watched.pass_time(TICK_SECONDS)
    assert watched.load_is_lost(load)
    worker.work()
    for result in worker.results(everything=True):
        watched.world.core.result(result)
    assert watched.load_is_lost(load)
    comes_back(watched)


def test_a_worker_that_dies_in_a_copy_and_does_not_come_back_holds_no_load(watched: Watched) -> None:
    load = watched.stuck_load()
    watched.die()
    watched.pass_time(TICK_SECONDS)
    assert watched.load_is_lost(load), "long before its deadline"
    assert watched.killed() == 0
    comes_back(watched)


def test_rows_that_ranks_would_read_are_checked_by_the_worker_under_the_same_patience(watched: Watched) -> None:
    world, run = watched.world, chain("b", 2)
    ranks = ranks_of(world)
    ranks.store(run)
    load = ranks.stage(run)
    watched.begin_copies()
    watched.pass_time(STAGE_SECONDS + PATIENCE_SECONDS + 2 * TICK_SECONDS)
    assert (watched.killed(), load in world.outcomes) == (1, False)
    watched.die()
    watched.pass_time(TICK_SECONDS)
    assert list(world.outcomes[load].status) == [ItemStatus.UNKNOWN] * len(run)
    ranks.close(load)
    world.connect("two")
    world.restart(OW)
    world.attach()
    world.settle()
    world.at_rest()


def test_stores_of_a_process_that_is_gone_wait_for_its_next_life(watched: Watched) -> None:
    """Their slots are granted by it, and nobody waits for them."""
    world, one = watched.world, watched.world.connect("one")
    one.compute(RUN)
    watched.begin_copies()
    watched.die()
    watched.pass_time(TICK_SECONDS)
    assert len(world.core.desk.open_orders()) == 1
    world.connect("two")
    world.restart(OW)
    world.attach()
    world.settle()
    world.at_rest()


@pytest.mark.parametrize(
    ("refusal", "outcome", "counted"),
    [
        (UnsupportedOperationError("a process that cannot be seen"), "out_of_reach", 1),
        (UnavailableError("the process is gone"), "killed", 0),
    ],
)
def test_a_worker_out_of_reach_is_told_once_and_waited_for(
    watched: Watched, refusal: BlockyardError, outcome: str, counted: int
) -> None:
    watched.connection = Connection(refusal)
    load = watched.stuck_load()
    watched.pass_time(TTL_SECONDS + 3 * PATIENCE_SECONDS)
    assert watched.killed(outcome) == counted
    assert load not in watched.world.outcomes
    watched.world.settle()
    assert load in watched.world.outcomes
    watched.world.at_rest()


def test_a_worker_that_could_not_be_ended_for_a_moment_is_ended_later(watched: Watched) -> None:
    """We had no descriptor left."""
    connection = watched.connection = Connection(UnavailableError("no descriptor is free"))
    watched.stuck_load()
    watched.pass_time(TTL_SECONDS + PATIENCE_SECONDS + 2 * TICK_SECONDS)
    connection.refusal = None
    watched.pass_time(2 * TICK_SECONDS)
    assert (connection.kills, watched.killed()) == (1, 1)


def test_the_life_that_is_attached_is_ended_whatever_its_lock_says(watched: Watched) -> None:
    """Somebody removed the lock, and a next life began beside it."""
    watched.stuck_load()
    watched.over.add(watched.epoch)
    watched.pass_time(TTL_SECONDS + PATIENCE_SECONDS + TICK_SECONDS)
    assert watched.killed() == 1


def test_the_next_life_of_the_worker_is_not_killed_for_the_last_one(watched: Watched) -> None:
    """It holds the lock and has not attached yet; the copies are those of the life before it."""
    load = watched.stuck_load()
    watched.pass_time(TTL_SECONDS + PATIENCE_SECONDS - TICK_SECONDS)
    watched.world.lose(OW)
    next_life = watched.connection = Connection()
    watched.over.add(watched.epoch)
    for _ in range(3):
        watched.world.tick(TICK_SECONDS)
        watched.life.look()
    assert next_life.kills == 0
    watched.life.probe()
    assert watched.load_is_lost(load)
    comes_back(watched, lambda: watched.pass_time(PATIENCE_SECONDS))


def test_a_worker_that_hangs_is_ended_over_the_connection_that_is_there_now(watched: Watched) -> None:
    """The channel was lost and made anew, and the attach has no answer."""
    watched.stuck_load()
    watched.world.lose(OW)
    watched.connection = None
    watched.pass_time(TTL_SECONDS + PATIENCE_SECONDS + TICK_SECONDS)
    assert watched.killed() == 0
    connection = watched.connection = Connection()
    watched.pass_time(HEARING_SECONDS)
    assert connection.kills == 0
    watched.pass_time(2 * TICK_SECONDS)
    assert connection.kills == 1


def test_a_worker_that_could_not_be_heard_is_heard_before_it_is_ended(watched: Watched) -> None:
    """It has ended its copies long ago, and we had no descriptor for a channel to it."""
    load = watched.stuck_load()
    watched.world.lose(OW)
    watched.connection = None
    watched.world.workers[OW].work()
    watched.pass_time(TTL_SECONDS + PATIENCE_SECONDS + TICK_SECONDS)
    watched.connection = Connection()
    watched.pass_time(TICK_SECONDS)
    watched.world.attach()
    watched.pass_time(TICK_SECONDS)
    assert watched.killed() == 0
    watched.world.settle()
    assert list(watched.world.outcomes[load].status) == [ItemStatus.OK] * len(RUN)


def test_a_worker_that_refuses_us_is_not_ended_by_us(watched: Watched) -> None:
    """It serves a later life of the block-manager: each new channel to it ends at once."""
    watched.stuck_load()
    watched.world.lose(OW)
    for _ in range(3 * round(PATIENCE_SECONDS / TICK_SECONDS)):
        watched.connection = Connection()
        watched.pass_time(TICK_SECONDS)
    assert watched.killed() == 0


def test_a_copy_of_an_earlier_life_of_ours_has_the_same_patience(watched: Watched) -> None:
    watched.stuck_load()
    world = watched.world
    world.start_manager()
    watched.life = watched.watch()
    world.attach()
    assert [job.epoch < world.core.profile.epoch for job in world.core.recovery.inherited_engine_writes] == [True]
    watched.pass_time(PATIENCE_SECONDS)
    assert watched.killed() == 0
    watched.pass_time(TICK_SECONDS)
    assert watched.killed() == 1
    assert not engine_writes_settled(world.core)
    watched.die()
    watched.pass_time(TICK_SECONDS)
    assert engine_writes_settled(world.core)
    world.connect("one")
    world.connect("two")
    comes_back(watched)


def test_without_any_worker_an_engine_that_comes_back_need_not_wait(watched: Watched) -> None:
    watched.stuck_load()
    watched.die()
    world = watched.world
    world.start_manager()
    watched.life = watched.watch()
    watched.over.clear()
    watched.pass_time(TICK_SECONDS)
    assert not engine_writes_settled(world.core), "whoever holds the lock may have copies of an earlier life of ours"
    watched.over.add(None)
    watched.pass_time(TICK_SECONDS)
    assert engine_writes_settled(world.core)
