"""Time to the first token of conversations on a real engine, with the connector against without it.

Ten conversations of three turns from a recorded trace, one request at a time, on an engine whose own cache holds two
prompts: what an earlier turn computed is gone, unless it is loaded. *Hits* are the requests of which all but the last
turn was seen before, *cold* ones share one block (a system prompt) or none. Each pair of replays, with and without, has
tokens of its own, and both must give the same tokens.
"""

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench.engine.child import EngineChild
from bench.engine.environment import obstacle
from bench.engine.models import BLOCK_TOKENS, LARGE, MODELS, VOCABULARY, BenchModel
from bench.engine.pair import EnginePair, engine_pair
from bench.engine.replay import TracedRequest, prompt_of, read_trace
from bench.errors import WrongBytesError
from bench.measure import Measure, skipped, versions

PAIRS: Final = 5
HITS_BAR: Final = 2.0
HITS_STRETCH: Final = 5.0
COLD_BAR: Final = 1 / 1.10
COLD_STRETCH: Final = 1 / 1.02
_PAUSE_SECONDS: Final = 0.1
_COLD_BLOCKS: Final = 1
_AGAINST: Final = "the same engine without the connector"


@dataclass(frozen=True, slots=True)
class _Replay:
    """What one engine took for the trace."""

    seconds: tuple[float, ...]
    cached: tuple[int, ...]
    tokens: tuple[int, ...]


def run(case: str) -> Iterator[Measure]:
    """Milliseconds to the first token of a real engine, p50 of hits and p99 of cold requests, with and without."""
    names = [f"{kind}_{model.name}" for model in MODELS for kind in ("hits", "cold", "loaded")]
    reason = obstacle()
    if reason:
        yield from (skipped(case, name, _AGAINST, reason) for name in names)
        return
    requests = read_trace()
    for model in MODELS:
        with engine_pair(model) as pair:
            yield from _measures(case, model, pair, requests)


def _measures(case: str, model: BenchModel, pair: EnginePair, requests: Sequence[TracedRequest]) -> Iterator[Measure]:
    hits = [index for index, request in enumerate(requests) if request.seen_blocks > _COLD_BLOCKS]
    cold = [index for index, request in enumerate(requests) if request.seen_blocks <= _COLD_BLOCKS]
    _replay_both(pair, requests, 0)
    rounds = [_replay_both(pair, requests, number) for number in range(1, PAIRS + 1)]
    largest = model is LARGE

    def measure(name: str, of: Callable[[_Replay], float], bar: float | None, stretch: float | None) -> Measure:
        ours = [of(on) for _, on in rounds]
        ratio = statistics.median(of(off) / of(on) for off, on in rounds)
        return Measure(
            case=case,
            measure=f"{name}_{model.name}",
            value=statistics.median(ours) * 1e3,
            unit="ms",
            ratio=ratio,
            bar=bar,
            stretch=stretch,
            ok=bar is None or ratio >= bar,
            n=PAIRS,
            spread=(min(ours) * 1e3, max(ours) * 1e3),
            against=f"{_AGAINST} ({model.facts})",
            versions=versions() | {"vllm": pair.version},
            load=os.getloadavg(),
        )

    yield measure(
        "hits",
        lambda replay: statistics.median(replay.seconds[index] for index in hits),
        HITS_BAR if largest else None,
        HITS_STRETCH if largest else None,
    )
    # Of ten requests the slowest is the 99th percentile.
    yield measure("cold", lambda replay: max(replay.seconds[index] for index in cold), COLD_BAR, COLD_STRETCH)
    yield _loaded(case, model, pair, [on for _, on in rounds], [(index, requests[index].seen_blocks) for index in hits])


def _loaded(
    case: str, model: BenchModel, pair: EnginePair, replays: Sequence[_Replay], hits: Sequence[tuple[int, int]]
) -> Measure:
    """Share of the tokens seen before that were not computed again."""
    seen = sum(blocks for _, blocks in hits) * BLOCK_TOKENS
    shares = [sum(replay.cached[index] for index, _ in hits) / seen for replay in replays]
    return Measure(
        case=case,
        measure=f"loaded_{model.name}",
        value=statistics.median(shares) * 100,
        unit="% of tokens",
        ratio=statistics.median(shares),
        n=PAIRS,
        spread=(min(shares) * 100, max(shares) * 100),
        against="tokens that were computed before",
        versions=versions() | {"vllm": pair.version},
        load=os.getloadavg(),
    )


def _replay_both(pair: EnginePair, requests: Sequence[TracedRequest], number: int) -> tuple[_Replay, _Replay]:
    """One pair of replays, without and with the connector; which comes first changes from pair to pair."""
    prompts = [
        prompt_of(request, block_tokens=BLOCK_TOKENS, vocabulary=VOCABULARY, salt=number) for request in requests
    ]
    if number % 2:
        off, on = _replay(pair.off, prompts), _replay(pair.on, prompts)
    else:
        on, off = _replay(pair.on, prompts), _replay(pair.off, prompts)
    if off.tokens != on.tokens:
        raise WrongBytesError("the engine with the connector gives other tokens than the one without")
    return off, on


def _replay(engine: EngineChild, prompts: list[list[int]]) -> _Replay:
    answer = engine.ask("one_by_one", prompts=prompts, pause_seconds=_PAUSE_SECONDS)
    return _Replay(tuple(answer["seconds"]), tuple(answer["cached"]), tuple(answer["tokens"]))
