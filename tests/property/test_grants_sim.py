"""Slots that ranks of engines write themselves, under kills, freezes, broken connections and replaced arenas.

I2: no slot is granted while somebody may write it, and bytes land under the current grant or in an orphan arena. I11:
nothing is granted while a rank may write for an earlier life of the block-manager. I7 and I9: no slot is lost or kept
for somebody who is gone. The mutants show that each of these can fail.
"""

import pytest

from blockyard.testing.seeds import SeedBatch, run_seeds, seed_batches
from blockyard.testing.sim.grants import GrantMutant, GrantWorld, run_grants
from blockyard.testing.sim.mutants import seeds_until_caught

MUTANTS = {
    "frees what ranks may still write": ("I2", 60, GrantMutant(quarantines=False)),
    "keeps the arena of a frozen rank": ("I2", 150, GrantMutant(replaces_arena=False)),
    "grants beside writers of an earlier life": ("I11", 150, GrantMutant(waits_for_inherited=False)),
    "does not hear of deaths": ("I9", 60, GrantMutant(hears_of_deaths=False)),
}


@pytest.mark.parametrize("seeds", seed_batches(), ids=str)
def test_a_slot_has_one_writer_whatever_fails(seeds: SeedBatch) -> None:
    run_seeds(seeds, run_grants)


def test_the_storm_leaves_room_for_work() -> None:
    worlds = [run_grants(seed) for seed in range(20)]
    assert sum(world.stored for world in worlds) > 200
    assert sum(world.arena > 1 for world in worlds) > 2


def test_the_same_seed_gives_the_same_run() -> None:
    def trace(world: GrantWorld) -> tuple[int, int, float]:
        return world.world.steps, world.oracle.landed, world.world.random.random()

    assert trace(run_grants(3)) == trace(run_grants(3))


@pytest.mark.filterwarnings("ignore")  # a run that is stopped in the middle drops the handles that it holds
@pytest.mark.parametrize("name", MUTANTS)
def test_grants_that_break_a_rule_are_caught(name: str) -> None:
    rule, within, mutant = MUTANTS[name]
    assert seeds_until_caught(lambda seed: run_grants(seed, mutant), (rule,), within) <= within
