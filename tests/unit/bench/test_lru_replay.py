"""The replay under LRU compares hits before it tells a speed."""

import os
import sys
from pathlib import Path

import pytest
from bench.cases import lru_replay
from bench.child import ROOT
from bench.errors import WrongBytesError
from bench.peers import child as peers_child
from bench.peers.environment import child_environment
from bench.replay.trace import Trace

from blockyard.core.vocabulary import KEY_BYTES, ContentKey

LIBCACHESIM = """
from collections import OrderedDict

class Request:
    def __init__(self, obj_id, obj_size): self.number = obj_id

class LRU:
    def __init__(self, cache_size): self.size, self.held = cache_size + EXTRA, OrderedDict()

    def get(self, request):
        found = request.number in self.held
        self.held[request.number] = None
        self.held.move_to_end(request.number)
        while len(self.held) > self.size: self.held.popitem(last=False)
        return found
"""
"""What stands in for the package; its caches are larger than they were asked for by ``EXTRA``."""


def keys(*numbers: int) -> list[ContentKey]:
    return [ContentKey(number.to_bytes(KEY_BYTES, "big")) for number in numbers]


TURNS = [(1, 2, 3), (1, 4), (5,), (1, 2, 3), (6, 7), (5, 8), (1, 4), (1, 2, 3)]
TRACE = Trace("turns", tuple(keys(*turn) for turn in TURNS), int(4 / lru_replay.SHARE))
"""At the share of the case it has a cache of four blocks."""


@pytest.fixture
def libcachesim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module = tmp_path / "libcachesim.py"
    module.write_text(LIBCACHESIM + "EXTRA = 0\n")
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    monkeypatch.setattr(peers_child, "child_environment", lambda: child_environment() | {"PYTHONPATH": path})
    monkeypatch.setattr(peers_child, "version_of", lambda package: "1.0")
    monkeypatch.setenv("PEERS_PYTHON", sys.executable)
    return module


@pytest.mark.usefixtures("libcachesim")
def test_with_equal_hits_there_is_a_speed() -> None:
    assert TRACE.capacity(lru_replay.SHARE) == 4
    [measure] = lru_replay._contest("lru_replay", TRACE)
    assert measure.value is not None
    assert measure.against == "libCacheSim's LRU 1.0"


def test_with_other_hits_there_is_none(libcachesim: Path) -> None:
    libcachesim.write_text(LIBCACHESIM + "EXTRA = 2\n")
    with pytest.raises(WrongBytesError, match=r"the pool hits \d+ times, libCacheSim's LRU \d+ times"):
        list(lru_replay._contest("lru_replay", TRACE))


def test_without_the_peer_the_case_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERS_PYTHON", "/nowhere/at/all/python")
    [measure] = lru_replay._contest("lru_replay", TRACE)
    assert "make bench-peers" in measure.skipped
