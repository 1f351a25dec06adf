"""vLLM with other numbers and other attention: half precision, latent attention, sliding windows beside full attention.

Prompts have 200 tokens: three whole blocks of 64.
"""

import pytest
from tests.engines.engine_cases import GEMMA3, LLAMA_BF16, MLA, prompt
from tests.engines.engine_kit import OW, Engines, EngineSetup, Nodes

from blockyard.core.errors import ServerStartError
from blockyard.core.vocabulary import Tier

pytestmark = pytest.mark.timeout(300)

PROMPTS = [prompt(number) for number in range(3)]
SETUPS = [EngineSetup(model=LLAMA_BF16), EngineSetup(model=GEMMA3)]
ROWS = {LLAMA_BF16.name: 9, GEMMA3.name: 9 + 3, MLA.name: 9}
"""Rows of three prompts; of a group with sliding windows those that the window still sees: more may be stored."""


async def check_memory_and_disk(nodes: Nodes, setup: EngineSetup) -> None:
    rows = ROWS[setup.model.name]
    async with nodes.place(setup) as place:
        await place.check(PROMPTS, 0)
        await place.stored(rows, Tier.G2, Tier.G3, or_more=setup.model.groups > 1)
        await place.engine.reset()
        await place.check(PROMPTS, 192)
        assert await place.loads() == {("g2", "ok"): rows}
        await place.clear(Tier.G2)
        await place.engine.reset()
        await place.check(PROMPTS, 192)
        assert await place.loads() == {("g2", "ok"): rows, ("g3", "ok"): rows}


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.model.name)
async def test_every_kind_of_model_is_served_from_memory_and_disk(nodes: Nodes, setup: EngineSetup) -> None:
    await check_memory_and_disk(nodes, setup)


async def test_of_a_sliding_window_only_what_it_still_sees_is_loaded(nodes: Nodes) -> None:
    """600 tokens are nine whole blocks; after them a window of 64 tokens sees the last of them."""
    async with nodes.place(EngineSetup(model=GEMMA3)) as place:
        await place.check([prompt(5, 600)], 0)
        await place.stored(9 + 1, Tier.G2, or_more=True)
        await place.engine.reset()
        await place.check([prompt(5, 600)], 576)
        assert await place.loads() == {("g2", "ok"): 9 + 1}


async def test_latent_attention_is_served_or_where_the_engine_cannot_go_on_after_a_prefix_refused(
    nodes: Nodes, engines: Engines
) -> None:
    """On a CPU without AMX the engine computes prompts in one piece only, and would answer wrongly after a prefix."""
    setup = EngineSetup(model=MLA)
    if await engines.goes_on_after_a_prefix(MLA):
        await check_memory_and_disk(nodes, setup)
        return
    with pytest.raises(ServerStartError, match="cannot go on after a loaded prefix"):
        engines.start(setup)


@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.model.name)
async def test_a_worker_that_dies_in_a_load_costs_time_only(nodes: Nodes, setup: EngineSetup) -> None:
    async with nodes.place(setup) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS[setup.model.name], Tier.G2, Tier.G3, or_more=setup.model.groups > 1)
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
