"""A whole node, its real decisions and job ledgers, under loss, repeats, delays, kills, freezes and clears.

On every landing: I2, a write lands under the current grant of its slot, and I10, no command of a superseded life has an
effect. On every grant: I11. All the time: I1 for what a load was answered, I7 and I12 for tables and events, I18 for
what was planned before a clear; P: each block that leaves G2 for others before it was written is counted. At rest: I6,
I8 and I9. The mutants show that each of these can fail.
"""

import pytest
from tests.property.node_sim.mutants import NODE_MUTANTS
from tests.property.node_sim.node import UNCHANGED, WRITES_BACK, SimNode, run_node

from blockyard.testing.seeds import SeedBatch, run_seeds, seed_batches
from blockyard.testing.sim.mutants import seeds_until_caught


@pytest.mark.parametrize("seeds", seed_batches(10), ids=str)
def test_a_node_keeps_its_rules_whatever_fails(seeds: SeedBatch) -> None:
    run_seeds(seeds, lambda seed: run_node(seed, WRITES_BACK if seed % 2 else UNCHANGED))


def test_the_storm_leaves_room_for_work() -> None:
    nodes = [run_node(seed) for seed in range(10)]
    assert sum(node.oracle.landed for node in nodes) > 100
    assert sum(node.engine.answers for node in nodes) > 30
    assert sum(sum(node.clears.values()) for node in nodes) > 7
    assert sum(process.life for node in nodes for process in node.processes) > 45


def test_the_same_seed_gives_the_same_run() -> None:
    def trace(node: SimNode) -> tuple[int, int, list[int], float]:
        return node.world.steps, node.oracle.landed, node.settled, node.world.random.random()

    assert trace(run_node(3)) == trace(run_node(3))


@pytest.mark.filterwarnings("ignore")  # a run that is stopped in the middle drops the handles that it holds
@pytest.mark.parametrize("name", NODE_MUTANTS)
def test_a_node_that_breaks_a_rule_is_caught(name: str) -> None:
    rules, within, mutant = NODE_MUTANTS[name]
    assert seeds_until_caught(lambda seed: run_node(seed, mutant), rules, within) <= within
