"""Peers run in processes of their own: their programs against stand-ins, and what is said where a peer is not there."""

import os
import sys
from pathlib import Path

import pytest
from bench.child import ROOT, Child
from bench.errors import ChildError, MissingPeerError
from bench.measure import Contest, Timed
from bench.peers import child as peers_child
from bench.peers.chains import block_hashes, tokens
from bench.peers.child import Peer
from bench.peers.environment import child_environment

DYNAMO = """
class Matches:
    def __init__(self, scores): self.scores = scores

class RadixTree:
    def __init__(self): self.holders = {}

    def apply_event(self, worker, event):
        import json
        prefix = ()
        for block in json.loads(event)["data"]["stored"]["blocks"]:
            prefix += (block["tokens_hash"],)
            self.holders.setdefault(prefix, set()).add((worker, 0))

    def find_matches(self, sequence):
        found = {}
        for length in range(1, len(sequence) + 1):
            found |= dict.fromkeys(self.holders.get(tuple(sequence[:length]), ()), length - LOST)
        return Matches(found)

def compute_block_hash_for_seq(tokens, size):
    return [sum(tokens[start : start + size]) for start in range(0, len(tokens) - size + 1, size)]
"""
"""What stands in for the runtime; ``LOST`` blocks are missing in each answer."""


@pytest.fixture
def dynamo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module = tmp_path / "dynamo/llm.py"
    module.parent.mkdir()
    module.write_text(DYNAMO + "LOST = 0\n")
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    monkeypatch.setattr(peers_child, "child_environment", lambda: child_environment() | {"PYTHONPATH": path})
    monkeypatch.setenv("PEERS_PYTHON", sys.executable)
    return module


def test_without_the_environment_a_peer_says_what_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERS_PYTHON", "/nowhere/at/all/python")
    with pytest.raises(MissingPeerError, match="make bench-peers"), Peer("dynamo_radix", "ai-dynamo-runtime"):
        pass


def test_a_peer_that_could_not_be_installed_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setenv("PEERS_PYTHON", str(python))
    with pytest.raises(MissingPeerError, match="^thing is not in the peers' environment: make bench-peers$"):
        Peer("p", "thing").__enter__()
    (tmp_path / "missing").mkdir()
    (tmp_path / "missing/thing").write_text("no wheel\n  for this machine\n")
    with pytest.raises(MissingPeerError, match="^thing could not be installed: no wheel for this machine$"):
        Peer("p", "thing").__enter__()


@pytest.mark.usefixtures("dynamo")
def test_rounds_of_the_radix_tree_say_how_much_they_did() -> None:
    with Peer("dynamo_radix", "numpy", chains=6, depth=4, workers=4, holders=2, seed=1) as peer:
        assert peer.version
        done = [
            peer.round("lookup", lookups=5, length=3),
            peer.round("miss", lookups=5),
            peer.round("ingest", chains=6),
        ]
        assert [part.amount for part in done] == [5, 5, 6 * 2 * 4]
        assert all(part.seconds > 0 for part in done)
        assert peer.ask("matches", chain=5, length=3) == {"1": 3, "2": 3}


@pytest.mark.usefixtures("dynamo")
def test_hashes_of_the_peer_come_back_to_be_compared() -> None:
    with Peer("dynamo_hashes", "numpy", prompt_tokens=8, block_tokens=4, seed=3) as peer:
        assert peer.round("hash", times=2).amount == 16
        drawn = tokens(8, seed=3)
        assert peer.ask("hashes") == [sum(drawn[:4]), sum(drawn[4:])]


def test_a_peer_that_answers_wrong_has_no_figure(dynamo: Path) -> None:
    dynamo.write_text(DYNAMO + "LOST = 1\n")
    with (
        pytest.raises(ChildError, match="has not taken up all events"),
        Peer("dynamo_radix", "numpy", chains=2, depth=4),
    ):
        pass


HANGS = """
import os, signal
from bench.orders import serve

class Program:
    def number(self):
        return os.getpid()

    def hang(self):
        signal.pause()

serve(Program())
"""


def test_a_program_that_is_late_is_killed(tmp_path: Path) -> None:
    with Child([sys.executable, "-c", HANGS], tmp_path / "log", os.environ | {"PYTHONPATH": str(ROOT)}) as child:
        number = child.ask("number")
        with pytest.raises(ChildError, match=r"no answer to the order hang in 0\.05 s"):
            child.ask("hang", timeout_seconds=0.05)
        assert not Path("/proc", str(number)).exists()
        with pytest.raises(ChildError, match="ended before the order number"):
            child.ask("number")


def test_chains_are_the_same_for_both_sides_and_differ_among_each_other() -> None:
    assert block_hashes(3, 8, seed=1) == block_hashes(3, 8, seed=1)
    drawn = [block_hashes(chain, 8, seed=seed)[0] for chain in range(4) for seed in range(4)]
    assert len(set(drawn)) == 16


def test_a_round_that_times_itself_counts_with_its_own_time() -> None:
    contest = Contest(
        measure="m", unit="x", ours=lambda: Timed(6.0, 2.0), theirs=lambda: Timed(1.0, 0.5), against="b", bar=1.5
    )
    measure = contest.run("case", rounds=3)
    assert (measure.value, measure.ratio, measure.ok) == (3.0, 1.5, True)
