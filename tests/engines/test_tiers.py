"""vLLM over every tier of real nodes: the tokens of the engine without Blockyard, and as many from the cache as said.

A prompt of 200 tokens has three whole blocks of 64: 192 tokens. Steps take 96 tokens at most, so prefill is chunked.
"""

import pytest
from tests.engines.engine_cases import LLAMA, prompt
from tests.engines.engine_kit import BM, OW, EngineSetup, Nodes

from blockyard.core.vocabulary import Tier

pytestmark = pytest.mark.timeout(300)

SETUP = EngineSetup(model=LLAMA)
PROMPTS = [prompt(number) for number in range(4)]
ROWS = 3 * len(PROMPTS)


async def test_what_was_computed_is_loaded_from_host_memory(nodes: Nodes) -> None:
    async with nodes.place(SETUP) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2)
        await place.check(PROMPTS, 192)
        assert await place.loads() == {}, "the engine's own cache holds them"
        await place.engine.reset()
        await place.check(PROMPTS, 192)
        assert await place.loads() == {("g2", "ok"): ROWS}


async def test_host_memory_that_was_emptied_is_filled_from_disk(nodes: Nodes) -> None:
    async with nodes.place(SETUP) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2, Tier.G3)
        await place.clear(Tier.G2)
        await place.engine.reset()
        await place.check(PROMPTS, 192)
        assert await place.loads() == {("g3", "ok"): ROWS}
        await place.stored(ROWS, Tier.G2, Tier.G3)
        await place.engine.reset()
        await place.check(PROMPTS, 192)
        assert await place.loads() == {("g3", "ok"): ROWS, ("g2", "ok"): ROWS}


async def test_a_node_that_was_killed_comes_back_with_its_disk(nodes: Nodes) -> None:
    async with nodes.place(SETUP) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G3)
        place.node.kill(BM, OW)
        place.node.start(OW, BM)
        await place.node.ready("nats", "node-lease")
        await place.mapped()
        await place.stored(ROWS, Tier.G3)
        await place.clear(Tier.G2)
        await place.engine.reset()
        await place.check(PROMPTS, 192)
        assert await place.loads() == {("g3", "ok"): ROWS}


async def test_the_shared_store_serves_this_node_and_another(nodes: Nodes) -> None:
    shared = nodes.shared_store()
    other = EngineSetup(model=LLAMA, node="b")
    async with (
        nodes.place(SETUP, nodes.settings(SETUP, shared=shared)) as a,
        nodes.place(other, nodes.settings(other, shared=shared)) as b,
    ):
        await a.check(PROMPTS, 0)
        await a.stored(ROWS, Tier.G2, Tier.G3, Tier.G4)
        await b.check(PROMPTS, 192)
        assert await b.loads() == {("g4", "ok"): ROWS}
        await a.clear(Tier.G2)
        await a.clear(Tier.G3)
        await a.engine.reset()
        await a.check(PROMPTS, 192)
        assert await a.loads() == {("g4", "ok"): ROWS}


@pytest.mark.parametrize(
    ("tokens", "cached"),
    [
        (63, 0),
        (64, 64),
        (65, 64),
        (128, 128),
        (129, 128),
        (191, 128),
        (256, 256),
        (600, 576),
    ],
)
async def test_whole_blocks_of_a_prompt_are_loaded(nodes: Nodes, tokens: int, cached: int) -> None:
    """Where they cover the whole prompt, the engine computes its last token again, but counts it as cached."""
    prompts = [prompt(7, tokens)]
    async with nodes.place(SETUP) as place:
        await place.check(prompts, 0, tokens=1)
        await place.stored(tokens // 64, Tier.G2)
        await place.engine.reset()
        await place.check(prompts, cached, tokens=1)


async def test_answers_are_stored_too_and_serve_the_next_turn(nodes: Nodes) -> None:
    async with nodes.place(SETUP) as place:
        first = await place.check([PROMPTS[0]], 0, tokens=100)
        # The last token was never computed: 299 are in the cache.
        await place.stored(4, Tier.G2)
        await place.engine.reset()
        await place.check([[*PROMPTS[0], *first.tokens[0], *PROMPTS[1]]], 256)


async def test_what_the_engine_still_holds_is_not_loaded(nodes: Nodes) -> None:
    """One block of 64 tokens is half there: its other half is loaded beside it."""
    async with nodes.place(SETUP) as place:
        await place.check([PROMPTS[0]], 0)
        await place.stored(3, Tier.G2)
        await place.engine.reset()
        # Three engine blocks of 32 and a part of one; only the first 64 tokens were loaded.
        await place.check([PROMPTS[0][:100]], 64)
        await place.check([PROMPTS[0]], 192)
        assert await place.loads() == {("g2", "ok"): 1 + 2}


async def test_prompts_that_share_a_beginning_share_its_blocks(nodes: Nodes) -> None:
    prompts = [[*PROMPTS[0][:128], *prompt(number, 72)] for number in (1, 2, 3)]
    async with nodes.place(SETUP) as place:
        await place.check(prompts[:1], 0)
        await place.stored(3, Tier.G2)
        await place.engine.reset()
        await place.check(prompts, [192, 128, 128])
        await place.stored(5, Tier.G2)


async def test_a_request_may_stay_out(nodes: Nodes) -> None:
    async with nodes.place(SETUP) as place:
        await place.check([PROMPTS[0]], 0, parameters={"blockyard": "off"})
        await place.check([PROMPTS[1]], 0)
        await place.stored(3, Tier.G2)
        await place.engine.reset()
        await place.check([PROMPTS[1]], 0, parameters={"blockyard": "off"})
        await place.engine.reset()
        await place.check(PROMPTS[:2], [0, 192])


async def test_loads_that_an_operator_switched_off_are_misses(nodes: Nodes) -> None:
    async with nodes.place(SETUP) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2)
        await place.engine.reset()
        await place.switch_loading(on=False)
        await place.check(PROMPTS, 0)
        await place.engine.reset()
        await place.switch_loading(on=True)
        await place.check(PROMPTS, 192)


async def test_without_a_prefix_cache_of_its_own_the_engine_uses_ours(nodes: Nodes) -> None:
    setup = EngineSetup(model=LLAMA, llm={"enable_prefix_caching": False})
    async with nodes.place(setup) as place:
        await place.check(PROMPTS, 0)
        await place.stored(ROWS, Tier.G2)
        await place.check(PROMPTS, 192)
        assert await place.loads() == {("g2", "ok"): ROWS}


async def test_a_working_set_far_larger_than_the_memory_of_the_engine_is_served(nodes: Nodes) -> None:
    """24 blocks of 32 tokens hold three of these twelve prompts."""
    setup = EngineSetup(model=LLAMA, llm={"num_gpu_blocks_override": 24, "max_model_len": 512})
    prompts = [prompt(number) for number in range(12)]
    async with nodes.place(setup) as place:
        for ids in prompts:
            await place.check([ids], 0)
        await place.stored(36, Tier.G2)
        for _ in range(2):
            for ids in prompts:
                await place.check([ids], 192)
        assert (await place.loads())["g2", "ok"] >= 2 * 3 * (len(prompts) - 3)


async def test_preempted_requests_go_on_with_right_tokens(nodes: Nodes) -> None:
    """18 blocks of 32 tokens, three requests that grow to 352 tokens each."""
    setup = EngineSetup(model=LLAMA, llm={"num_gpu_blocks_override": 18, "max_model_len": 512})
    prompts = [prompt(number, 252) for number in range(3)]
    async with nodes.place(setup) as place:
        await place.check(prompts, 0, tokens=100)
        assert sum((await place.engine.metrics("vllm:num_preemptions")).values()) > 0
        await place.stored(3 * 5, Tier.G2)
        await place.engine.reset()
        await place.check(prompts, 192, tokens=100)
