"""vLLM on two ranks, each in a process of its own with half of every block."""

import os
import signal

import pytest
from tests.engines.engine_cases import LLAMA, prompt
from tests.engines.engine_kit import OW, EngineSetup, Nodes

from blockyard.core.errors import ServerStartError
from blockyard.core.vocabulary import Tier

pytestmark = pytest.mark.timeout(600)

PROMPTS = [prompt(number) for number in range(2)]
ROWS = 3 * len(PROMPTS)


async def test_both_ranks_get_their_halves_back(nodes: Nodes) -> None:
    async with nodes.place(EngineSetup(model=LLAMA, ranks=2)) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2, Tier.G3)
        await place.engine.reset()
        await place.check(PROMPTS, 192)
        assert await place.loads() == {("g2", "ok"): ROWS}
        await place.clear(Tier.G2)
        await place.engine.reset()
        await place.check(PROMPTS, 192)
        assert await place.loads() == {("g2", "ok"): ROWS, ("g3", "ok"): ROWS}


async def test_an_engine_whose_rank_dies_in_a_load_leaves_blocks_that_serve_the_next(nodes: Nodes) -> None:
    setup = EngineSetup(model=LLAMA, ranks=2)
    async with nodes.place(setup) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2, Tier.G3)
        await place.engine.reset()
        ranks = [pid for pid, name in (await place.engine.processes()).items() if "Worker" in name]
        assert len(ranks) == 2
        async with place.loading_while_frozen(OW, PROMPTS) as running:
            os.kill(ranks[1], signal.SIGKILL)
        with pytest.raises(ServerStartError):
            await running
        place.engines.forget(setup)
        again = await place.with_new_engine()
        await again.check(PROMPTS, 192)
        assert ("g2", "corrupt") not in await again.loads()
