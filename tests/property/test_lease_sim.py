"""Leases of one name under loss, delays, kills, freezes, steps of the wall clock, and a server that forgets.

R3: no write replaces a live record of another folder or of a later life. I14: who speaks holds the name. I21: steps of
the clock end no lease early, and none outlives its owner by more than a lease and a tick. The mutants show that each of
these can fail.
"""

from collections.abc import Callable

import pytest

from blockyard.core.clock import Clock
from blockyard.core.name_lease import LeaseState, NameHolder, NameLease, NextLeaseStep, WriteRecord
from blockyard.testing.seeds import SeedBatch, run_seeds, seed_batches
from blockyard.testing.sim.lease import LeaseMutant, LeaseWorld, run_lease
from blockyard.testing.sim.mutants import seeds_until_caught
from blockyard.testing.sim.world import SimWorld


@pytest.mark.parametrize("seeds", seed_batches(100), ids=str)
def test_a_name_has_one_owner_whatever_fails(seeds: SeedBatch) -> None:
    run_seeds(seeds, run_lease)


def test_the_storm_leaves_room_for_work() -> None:
    worlds = [run_lease(seed) for seed in range(10)]
    assert sum(node.spoken for world in worlds for node in world.nodes) > 500
    assert sum(node.life for world in worlds for node in world.nodes) > 40
    assert sum(world.server.expirations for world in worlds) > 20


def test_the_same_seed_gives_the_same_run() -> None:
    def trace(world: LeaseWorld) -> tuple[int, int, float]:
        return world.world.steps, world.server.revision, world.world.random.random()

    assert trace(run_lease(3)) == trace(run_lease(3))


# --- mutants --------------------------------------------------------------------------------------------------------
class WallClock:
    """Takes the wall clock for time."""

    def __init__(self, world: SimWorld) -> None:
        self._clock = world.clock

    def monotonic(self) -> float:
        return self._clock.wall_ms() / 1_000

    def wall_ms(self) -> int:
        return self._clock.wall_ms()


def _replacing(name: str, make: Callable[[NameLease, Clock], Callable[..., object]]) -> LeaseMutant:
    return LeaseMutant(spoil=lambda lease, clock: setattr(lease, name, make(lease, clock)))


def _takes_what_it_finds(lease: NameLease, clock: Clock) -> Callable[..., object]:
    def found(holder: NameHolder | None, revision: int) -> NextLeaseStep:
        return WriteRecord(revision, clock.monotonic())

    return found


def _counts_from_the_answer(lease: NameLease, clock: Clock) -> Callable[..., object]:
    written = lease.written
    return lambda write, revision: written(WriteRecord(write.over, clock.monotonic()), revision)


def _renews_blindly(lease: NameLease, clock: Clock) -> Callable[..., object]:
    step, last = lease.next_step, [0]

    def next_step() -> NextLeaseStep:
        if lease.revision is not None:
            last[0] = lease.revision
        return WriteRecord(last[0], clock.monotonic()) if last[0] else step()

    return next_step


def _waits_for_ever(lease: NameLease, clock: Clock) -> Callable[..., object]:
    found = lease.found

    def stubborn(holder: NameHolder | None, revision: int) -> NextLeaseStep:
        taken = lease.state is LeaseState.TAKEN and holder is None
        return found(NameHolder(None, lease._epoch) if taken else holder, revision)

    return stubborn


MUTANTS = {
    "takes the name from its holder": ("R3", _replacing("found", _takes_what_it_finds)),
    "speaks however late it is": ("I14", LeaseMutant(may_speak=lambda lease: lease.state is LeaseState.HELD)),
    "counts the lease from the answer": ("I14", _replacing("written", _counts_from_the_answer)),
    "writes over numbers of before an outage": ("R3", _replacing("next_step", _renews_blindly)),
    "takes the wall clock for time": ("I14", LeaseMutant(clock=WallClock)),
    "never takes over what has expired": ("I21", _replacing("found", _waits_for_ever)),
}
WITHIN_SEEDS = 100


@pytest.mark.parametrize("name", MUTANTS)
def test_a_lease_that_breaks_a_rule_is_caught(name: str) -> None:
    rule, mutant = MUTANTS[name]
    assert seeds_until_caught(lambda seed: run_lease(seed, mutant), (rule,), WITHIN_SEEDS) <= WITHIN_SEEDS
