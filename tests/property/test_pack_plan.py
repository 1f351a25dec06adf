"""Random registrations, evictions, successes and failures: what is in G4 is always closed under prefixes."""

import random

import pytest

from blockyard.core.block_name import BlockName
from blockyard.core.events import BlockScope
from blockyard.core.pack_plan import PackGeometry, PackPlan, PackPlanner
from blockyard.core.stored_key import stored_key
from blockyard.core.vocabulary import ROOT_KEY, ChainDigest, ContentKey, IdentityDigest, PackId

SCOPE = BlockScope(IdentityDigest(bytes(32)))
GEOMETRY = PackGeometry(4_096, 4 * (4_096 + 256))
CHAINS = 12
DEPTH = 21


def tree(chance: random.Random) -> list[BlockName]:
    """Blocks of chains that branch off each other at random positions."""
    blocks: list[BlockName] = []
    chains: list[list[BlockName]] = [[]]
    for number in range(CHAINS):
        trunk = chance.choice(chains)
        names = trunk[: chance.randint(0, len(trunk))]
        while len(names) < chance.randint(1, DEPTH):
            digest = ChainDigest(f"{number}-{len(names)}".encode().ljust(32, b"."))
            names.append(BlockName(digest, names[-1].key if names else ROOT_KEY, len(names)))
            blocks.append(names[-1])
        chains.append(names)
    return blocks


def check_plan(plan: PackPlan, stored: set[bytes], planned: set[bytes], held: set[ContentKey]) -> None:
    assert plan.first_position % GEOMETRY.blocks_per_pack == 0
    assert 1 <= len(plan.names) <= GEOMETRY.blocks_per_pack
    assert plan.pack == PackId(plan.names[-1].key)
    for before, name in zip(plan.names, plan.names[1:], strict=False):
        assert (name.parent, name.position) == (before.key, before.position + 1)
    assert set(plan.keys) <= held, "planned from what G2 does not hold"
    first = plan.names[0]
    assert first.parent == ROOT_KEY or first.parent in stored or plan.previous == PackId(first.parent)
    assert plan.previous is None or plan.previous in planned, "the pack before is not in the job"
    assert plan.pack not in stored


@pytest.mark.parametrize("seed", range(30))
def test_what_is_stored_stays_closed_under_prefixes(seed: int) -> None:
    chance = random.Random(seed)
    blocks = tree(chance)
    by_key: dict[bytes, BlockName] = {name.key: name for name in blocks}
    planner = PackPlanner(GEOMETRY, max_job_blocks=chance.choice((4, 12, 256)))
    held: set[ContentKey] = set()
    stored: set[bytes] = set()
    flying: list[list[PackPlan]] = []
    for step in range(300):
        now = step * 0.3
        roll = chance.random()
        pinned = {key for job in flying for plan in job for key in plan.keys}
        if roll < 0.35:
            name = chance.choice(blocks)
            held.add(name.key)
            planner.registered([name], SCOPE, now)
        elif roll < 0.5 and held - pinned:
            key = chance.choice(sorted(held - pinned))
            held.discard(key)
            planner.evicted([stored_key(key, SCOPE.group)], now)
        elif roll < 0.8:
            planned: set[bytes] = set()
            for plan in planner.due(now, limit=chance.choice((1, 3, 64))):
                check_plan(plan, stored, planned if plan.previous else set[bytes](), held)
                if plan.previous is None:
                    planned = set()
                    flying.append([])
                flying[-1].append(plan)
                planned.add(plan.pack)
        elif flying:
            job = flying.pop(chance.randrange(len(flying)))
            fails_from = chance.randint(0, len(job)) if chance.random() < 0.4 else len(job)
            for plan in job[:fails_from]:
                stored.update(plan.keys)
                planner.stored(plan.pack)
            for plan in job[fails_from:]:
                planner.failed(plan.pack, now)
        for name in (by_key[key] for key in stored):
            assert name.parent == ROOT_KEY or name.parent in stored
    finish(planner, blocks, held, stored, flying)


def finish(
    planner: PackPlanner,
    blocks: list[BlockName],
    held: set[ContentKey],
    stored: set[bytes],
    flying: list[list[PackPlan]],
) -> None:
    """With everything registered and nothing failing, everything is stored in the end."""
    now = 1_000.0
    for job in flying:
        for plan in job:
            planner.stored(plan.pack)
            stored.update(plan.keys)
    planner.registered(blocks, SCOPE, now)
    held.update(name.key for name in blocks)
    for _ in range(2 * DEPTH):
        now += 10.0
        for plan in planner.due(now):
            stored.update(plan.keys)
            planner.stored(plan.pack)
    assert stored == {name.key for name in blocks}
    assert planner.in_flight == 0
