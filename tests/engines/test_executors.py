"""vLLM with every way to copy its pages: a worker by itself, a worker through NIXL, the ranks of the engine."""

import pytest
from tests.engines.engine_cases import GEMMA3, LLAMA, prompt
from tests.engines.engine_kit import BM, OW, EngineSetup, Nodes

from blockyard.core.vocabulary import Executor, Tier

pytestmark = pytest.mark.timeout(300)

PROMPTS = [prompt(number) for number in range(4)]
ROWS = 3 * len(PROMPTS)
OTHERS = pytest.mark.parametrize("executor", [Executor.NIXL, Executor.ENGINE])


@OTHERS
async def test_every_executor_loads_from_memory_and_disk(nodes: Nodes, executor: Executor) -> None:
    async with nodes.place(EngineSetup(model=LLAMA, executor=executor)) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2, Tier.G3)
        await place.engine.reset()
        await place.check(PROMPTS, 192)
        assert await place.loads() == {("g2", "ok"): ROWS}
        await place.clear(Tier.G2)
        await place.engine.reset()
        await place.check(PROMPTS, 192)
        assert await place.loads() == {("g2", "ok"): ROWS, ("g3", "ok"): ROWS}


@OTHERS
async def test_every_executor_survives_the_services_of_its_node(nodes: Nodes, executor: Executor) -> None:
    async with nodes.place(EngineSetup(model=LLAMA, executor=executor)) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2, Tier.G3)
        for services in ((BM,), (OW,), (BM, OW)):
            await place.engine.reset()
            running = place.begin(PROMPTS)
            place.node.kill(*services)
            place.node.start(*services)
            await place.same_tokens(PROMPTS, await running)
            await place.node.ready("nats", "node-lease")
            await place.mapped()
        await place.engine.reset()
        await place.check(PROMPTS, 192)


@OTHERS
async def test_every_executor_serves_several_groups(nodes: Nodes, executor: Executor) -> None:
    async with nodes.place(EngineSetup(model=GEMMA3, executor=executor)) as place:
        await place.check(PROMPTS, 0)
        # How many rows of a window that has passed them are stored is a matter of time.
        await place.stored(ROWS + len(PROMPTS), Tier.G2, or_more=True)
        await place.engine.reset()
        await place.check(PROMPTS, 192)
