"""vLLM while something breaks: every request ends with the tokens of the engine without Blockyard.

Damaged blocks are found by their checksums; what cannot be loaded is computed.
"""

from dataclasses import replace

import pytest
from tests.engines.damage import damage_arena, damage_packs, damage_slabs
from tests.engines.engine_cases import LLAMA, prompt
from tests.engines.engine_kit import BM, OW, RT, EngineSetup, Nodes

from blockyard.core.vocabulary import Tier
from blockyard.runtime.settings import JobSection

pytestmark = pytest.mark.timeout(600)

SETUP = EngineSetup(model=LLAMA)
PROMPTS = [prompt(number) for number in range(4)]
ROWS = 3 * len(PROMPTS)


async def test_wrong_bytes_in_host_memory_are_read_again_from_disk(nodes: Nodes) -> None:
    async with nodes.place(SETUP) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2, Tier.G3)
        assert damage_arena(place.node.pid(OW)) == ROWS
        await place.engine.reset()
        await place.check(PROMPTS, 192)
        assert await place.loads() == {("g3", "ok"): ROWS}


async def test_wrong_bytes_on_disk_are_computed_again(nodes: Nodes) -> None:
    async with nodes.place(SETUP) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2, Tier.G3)
        await place.clear(Tier.G2)
        assert damage_slabs(place.node.folder.slabs(place.node.settings)) == ROWS
        await place.engine.reset()
        await place.same_tokens(PROMPTS, await place.generate(PROMPTS))
        # Where nothing is loaded there is no source.
        assert await place.loads() == {("none", "corrupt"): ROWS}


async def test_wrong_bytes_in_the_store_are_computed_again(nodes: Nodes) -> None:
    settings = nodes.settings(SETUP, shared=nodes.shared_store())
    async with nodes.place(SETUP, settings) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2, Tier.G3, Tier.G4)
        await place.clear(Tier.G2)
        await place.clear(Tier.G3)
        assert await damage_packs(settings.g4) >= ROWS
        await place.engine.reset()
        await place.same_tokens(PROMPTS, await place.generate(PROMPTS))
        # Where nothing is loaded there is no source.
        assert await place.loads() == {("none", "corrupt"): ROWS}


async def test_one_wrong_block_costs_only_what_comes_after_it(nodes: Nodes) -> None:
    async with nodes.place(SETUP) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2, Tier.G3)
        await place.clear(Tier.G2)
        assert damage_slabs(place.node.folder.slabs(place.node.settings), most=1) == 1
        await place.engine.reset()
        await place.same_tokens(PROMPTS, await place.generate(PROMPTS))
        assert await place.loads() == {("none", "corrupt"): 1, ("g3", "ok"): ROWS - 1}


@pytest.mark.parametrize("ranks", [1, 2])
async def test_a_worker_that_dies_in_a_load_costs_time_only(nodes: Nodes, ranks: int) -> None:
    async with nodes.place(replace(SETUP, ranks=ranks)) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2, Tier.G3)
        await place.engine.reset()
        async with place.loading_while_frozen(OW, PROMPTS) as running:
            place.node.kill(OW)
            place.node.start(OW)
            found = await running
        await place.same_tokens(PROMPTS, found)
        await place.node.ready("nats", "node-lease")
        await place.mapped()
        await place.engine.reset()
        await place.check(PROMPTS, 192)


async def test_a_remote_tier_that_dies_in_a_load_costs_time_only(nodes: Nodes) -> None:
    settings = nodes.settings(SETUP, shared=nodes.shared_store())
    async with nodes.place(SETUP, settings) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2, Tier.G3, Tier.G4)
        await place.clear(Tier.G2)
        await place.clear(Tier.G3)
        await place.engine.reset()
        running = place.begin(PROMPTS)
        place.node.kill(RT)
        await place.same_tokens(PROMPTS, await running)
        place.node.start(RT)
        await place.node.ready("nats", "node-lease")
        await place.engine.reset()
        await place.check(PROMPTS, 192)


async def test_a_block_manager_that_dies_while_requests_run_is_not_missed(nodes: Nodes) -> None:
    many = [prompt(number) for number in range(16)]
    async with nodes.place(SETUP) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2)
        await place.engine.reset()
        running = place.begin(many, tokens=64)
        place.node.kill(BM)
        place.node.start(BM)
        await place.same_tokens(many, await running, tokens=64)
        await place.node.ready("nats", "node-lease")
        await place.mapped()
        await place.engine.reset()
        await place.check(PROMPTS, 192)


async def test_without_any_service_the_engine_computes(nodes: Nodes) -> None:
    async with nodes.place(SETUP) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2, Tier.G3)
        place.node.kill(BM, OW)
        await place.engine.reset()
        found = await place.generate(PROMPTS)
        await place.same_tokens(PROMPTS, found)
        assert found.cached == (0,) * len(PROMPTS)
        place.node.start(OW, BM)
        await place.node.ready("nats", "node-lease")
        await place.mapped()
        await place.engine.reset()
        await place.check(PROMPTS, 192)


async def test_a_frozen_worker_holds_no_request_longer_than_its_deadline(nodes: Nodes) -> None:
    setup = EngineSetup(model=LLAMA, connector={"blockyard.load_timeout_ms": 1_000})
    async with nodes.place(setup) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2, Tier.G3)
        await place.engine.reset()
        async with place.loading_while_frozen(OW, PROMPTS) as running:
            pass
        await place.same_tokens(PROMPTS, await running)
        await place.engine.reset()
        await place.check(PROMPTS, 192)


async def test_a_worker_that_never_goes_on_is_killed_and_its_request_computed(nodes: Nodes) -> None:
    setup = EngineSetup(model=LLAMA, connector={"blockyard.load_timeout_ms": 1_000})
    settings = nodes.settings(setup).model_copy(update={"jobs": JobSection(stuck_ms=1_000)})
    async with nodes.place(setup, settings) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2, Tier.G3)
        await place.engine.reset()
        async with place.loading_while_frozen(OW, PROMPTS) as running:
            await place.same_tokens(PROMPTS, await running)
        place.node.kill(OW)
        place.node.start(OW)
        await place.node.ready("nats", "node-lease")
        await place.mapped()
        await place.engine.reset()
        await place.check(PROMPTS, 192)
