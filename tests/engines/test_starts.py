"""How engines start: after a refusal, without a node, and under a name that another one has."""

import re

import pytest
from tests.engines.engine_cases import LLAMA, prompt
from tests.engines.engine_kit import Engines, EngineSetup, Nodes, Place

from blockyard.core.vocabulary import Tier
from blockyard.testing.running_node import eventually

pytestmark = pytest.mark.timeout(300)

PROMPTS = [prompt(number) for number in range(2)]
ROWS = 3 * len(PROMPTS)


async def test_an_engine_starts_after_others_were_refused_in_its_process(nodes: Nodes) -> None:
    refused = {
        "whole number of engine blocks": {"blockyard.block_tokens": 65},
        "the nearest is blockyard.socket": {"blockyard.Socket": "/s"},
    }
    async with nodes.place(EngineSetup(model=LLAMA, llm={"refused": refused})) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2)
        await place.engine.reset()
        await place.check(PROMPTS, 192)


async def test_an_engine_without_a_node_says_so_in_its_log_and_computes(engines: Engines) -> None:
    engine = engines.start(EngineSetup(model=LLAMA, connector={"blockyard.name": "alone"}))

    async def said() -> bool:
        lines = [line for line in engine.log().splitlines() if "has no node" in line]
        return len(lines) == 2 and all(" WARNING " in line and "channel.sock" in line for line in lines)

    try:
        found = await engine.generate(PROMPTS)
        assert found.finish == ("length",) * len(PROMPTS)
        await eventually(said, "the engine and its rank say that there is no node")
    finally:
        engine.close()


async def test_a_second_engine_of_a_name_waits_for_the_end_of_the_first(nodes: Nodes, engines: Engines) -> None:
    setup = EngineSetup(model=LLAMA, connector={"blockyard.name": "twin"})
    async with nodes.place(setup) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2)
        second = engines.start(setup)
        try:
            reason = f"refuses engine twin: .*connected already .*pid={place.engine.pid}\\)"

            async def refused() -> bool:
                return re.search(reason, second.log()) is not None

            async def gone() -> bool:
                page = await place.node.get("/v1/engines")
                return page is not None and not page["engines"]

            await eventually(refused, "the second engine says whose name it has")
            await place.engine.reset()
            await place.check(PROMPTS, 192)
            engines.forget(setup)
            await eventually(gone, "the first engine is gone")
            after = Place(place.node, second, engines, setup)
            await after.mapped()
            await after.check(PROMPTS, 192)
        finally:
            second.close()
