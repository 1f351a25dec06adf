"""What each write policy of G3 costs and keeps, on recorded loads through the decisions of a node.

Deterministic: the machine decides only how long it takes, one to two minutes on a free processor. Half of a load is
served, then the node is killed, then the rest is served. ``kept`` is what a new life finds on disk of what the killed
one could serve; all of what was announced as on disk is among it, else the case fails.
"""

from collections.abc import Iterator
from typing import Final

from bench.errors import WrongBytesError
from bench.measure import Measure
from bench.replay.node_replay import NodeReplay
from bench.replay.trace import Trace, load
from blockyard.core.offload_plan import OffloadRules, WritePolicy
from blockyard.core.vocabulary import Tier

LOADS: Final = (("mooncake_conversation", 3_000), ("mooncake_synthetic", 2_886), ("agentic_coding_a", 500))
"""Traces, and how many of their requests are served."""
G2_SHARE, G3_SHARE = 0.05, 0.3
"""Sizes of the tiers, as shares of the different blocks."""
_WRITTEN: Final = "written"
_SOON: Final = 0.1
"""Share of the requests that count as soon after the kill."""


def run(case: str) -> Iterator[Measure]:
    """Blocks written, hits, and what outlives a kill, for each load and write policy of G3."""
    for name, requests in LOADS:
        yield from measures(case, load(name).head(requests))


def measures(case: str, trace: Trace) -> Iterator[Measure]:
    """Figures of one load under each policy, against the other."""
    through, back = (percents(trace, policy) for policy in (WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK))
    sides = ((WritePolicy.WRITE_THROUGH, through, back), (WritePolicy.WRITE_BACK, back, through))
    for figure in through:
        for policy, own, other in sides:
            less_is_better = figure == _WRITTEN
            better, worse = (other, own) if less_is_better else (own, other)
            yield Measure(
                case=case,
                measure=f"{trace.name} {policy} {figure}",
                value=own[figure],
                unit="%",
                ratio=better[figure] / max(worse[figure], 1e-9),
                n=1,
                spread=(own[figure], own[figure]),
                against="the other policy",
            )


def percents(trace: Trace, policy: WritePolicy) -> dict[str, float]:
    """Figures of one load under one policy: of the different blocks, of the blocks asked for, of the blocks held."""
    node = NodeReplay(OffloadRules(policy=policy), trace.capacity(G2_SHARE), trace.capacity(G3_SHARE))
    half, soon = len(trace.requests) // 2, int(len(trace.requests) * _SOON)
    before = node.serve(trace, 0, half)
    could_serve, durable = node.held(), node.held(Tier.G3)
    node.kill()
    kept = node.held()
    if not durable <= kept:
        raise WrongBytesError(f"{len(durable - kept)} blocks that were announced as on disk are gone")
    after = node.serve(trace, half, half + soon)
    rest = node.serve(trace, half + soon, len(trace.requests))
    node.close()
    shares = {
        _WRITTEN: node.written / trace.distinct,
        "hits": before.share,
        "kept": len(kept) / len(could_serve),
        "hits_soon_after": after.share,
        "hits_later": rest.share,
    }
    return {figure: 100 * share for figure, share in shares.items()}
