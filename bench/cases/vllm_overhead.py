"""What the connector costs a real engine that finds nothing in the lower tiers."""

from collections.abc import Iterator
from itertools import count
from typing import Final

from bench.engine.child import EngineChild
from bench.engine.environment import obstacle
from bench.engine.models import MEDIUM, VOCABULARY
from bench.engine.pair import engine_pair
from bench.engine.replay import random_prompts
from bench.errors import WrongBytesError
from bench.measure import Contest, Measure, skipped

ROUNDS: Final = 5
BAR: Final = 0.95
STRETCH: Final = 0.98
PROMPTS: Final = 16
PROMPT_TOKENS: Final = 512
NEW_TOKENS: Final = 64
_MEASURE: Final = "no_hits"
_AGAINST: Final = "the same engine without the connector"


def run(case: str) -> Iterator[Measure]:
    """Tokens per second of a real engine, prompts that share nothing, everything stored and nothing found."""
    reason = obstacle()
    if reason:
        yield skipped(case, _MEASURE, _AGAINST, reason)
        return
    with engine_pair(MEDIUM) as pair:
        salts = count()

        def serve(engine: EngineChild) -> float:
            prompts = random_prompts(PROMPTS, PROMPT_TOKENS, vocabulary=VOCABULARY, salt=next(salts))
            answer = engine.ask("all_at_once", prompts=prompts, tokens=NEW_TOKENS)
            if any(answer["cached"]):
                raise WrongBytesError("a prompt that nobody computed was found")
            return PROMPTS * (PROMPT_TOKENS + NEW_TOKENS)

        yield Contest(
            measure=_MEASURE,
            unit="tokens",
            ours=lambda: serve(pair.on),
            theirs=lambda: serve(pair.off),
            against=_AGAINST,
            bar=BAR,
            stretch=STRETCH,
        ).run(case, ROUNDS)
