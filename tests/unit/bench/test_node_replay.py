"""The replay of a load through the decisions of a node, and what a kill leaves of it."""

import hashlib

import pytest
from bench.cases.write_policy import measures
from bench.replay.node_replay import NodeReplay
from bench.replay.trace import Trace

from blockyard.core.offload_plan import OffloadRules, WritePolicy
from blockyard.core.vocabulary import ContentKey, Tier


def prompt(name: str, blocks: int) -> list[ContentKey]:
    return [ContentKey(hashlib.sha256(f"{name} {index}".encode()).digest()[:16]) for index in range(blocks)]


A, B = prompt("a", 4), prompt("b", 4)
TRACE = Trace("two prompts", (A, B, A, B), 8)


@pytest.mark.parametrize(("policy", "kept"), [(WritePolicy.WRITE_THROUGH, 8), (WritePolicy.WRITE_BACK, 0)])
def test_a_kill_leaves_what_is_on_disk(policy: WritePolicy, kept: int) -> None:
    node = NodeReplay(OffloadRules(policy=policy), g2=32, g3=32)
    hits = node.serve(TRACE, 0, 2)
    assert (hits.asked, hits.share) == (8, 0.0)
    assert (len(node.held()), len(node.held(Tier.G3)), node.written) == (8, kept, kept)
    node.kill()
    assert len(node.held()) == kept
    hits = node.serve(TRACE, 2, 4)
    assert (hits.asked, hits.in_tier) == (8, {Tier.G2: 0, Tier.G3: kept})
    node.close()


def test_blocks_of_g2_are_hits_of_g2() -> None:
    node = NodeReplay(OffloadRules(), g2=32, g3=32)
    assert node.serve(TRACE, 0, 4).in_tier == {Tier.G2: 8, Tier.G3: 0}
    node.close()


def test_all_figures_of_a_load_are_told() -> None:
    trace = Trace("many", tuple(prompt(f"{number}", 5) for number in range(40)), 200)
    told = [(measure.measure.split()[1:], measure.value) for measure in measures("write_policy", trace)]
    figures = ["written", "hits", "kept", "hits_soon_after", "hits_later"]
    policies = ["write_through", "write_back"]
    assert [name for name, _ in told] == [[policy, figure] for figure in figures for policy in policies]
    assert [value for (policy, figure), value in told if figure == "kept"] != [100.0, 100.0]
    assert [value for (policy, figure), value in told if figure == "written" and policy == "write_through"] >= [100.0]
