"""vLLM with other numbers and other attention: half precision, latent attention, sliding windows beside full attention.

Prompts have 200 tokens: three whole blocks of 64.
"""

import pytest
from tests.engines.engine_cases import GEMMA3, LLAMA_BF16, MLA, Model, prompt
from tests.engines.engine_kit import OW, EngineSetup, Nodes

from blockyard.core.vocabulary import Tier

pytestmark = pytest.mark.timeout(300)

PROMPTS = [prompt(number) for number in range(3)]
MODELS = pytest.mark.parametrize("model", [LLAMA_BF16, MLA, GEMMA3], ids=lambda model: model.name)
ROWS = {LLAMA_BF16.name: 9, MLA.name: 9, GEMMA3.name: 18}
"""Rows of all groups."""


@MODELS
async def test_every_kind_of_model_is_served_from_memory_and_disk(nodes: Nodes, model: Model) -> None:
    setup = EngineSetup(model=model)
    async with nodes.place(setup) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS[model.name], Tier.G2, Tier.G3)
        await place.engine.reset()
        await place.check(PROMPTS, 192)
        from_memory = await place.loads()
        assert set(from_memory) == {("g2", "ok")}
        await place.clear(Tier.G2)
        await place.engine.reset()
        await place.check(PROMPTS, 192)
        assert await place.loads() == from_memory | {("g3", "ok"): from_memory["g2", "ok"]}


async def test_of_a_sliding_window_only_what_it_still_sees_is_loaded(nodes: Nodes) -> None:
    """600 tokens are nine whole blocks; a window of 64 tokens sees the last of them, and one token before."""
    async with nodes.place(EngineSetup(model=GEMMA3)) as place:
        await place.check([prompt(5, 600)], 0)
        await place.stored(2 * 9, Tier.G2)
        await place.engine.reset()
        await place.check([prompt(5, 600)], 576)
        loaded = (await place.loads())["g2", "ok"]
        assert loaded in (9 + 1, 9 + 2)


@pytest.mark.parametrize("model", [MLA, GEMMA3], ids=lambda model: model.name)
async def test_a_worker_that_dies_in_a_load_costs_time_only(nodes: Nodes, model: Model) -> None:
    async with nodes.place(EngineSetup(model=model)) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS[model.name], Tier.G2, Tier.G3)
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
