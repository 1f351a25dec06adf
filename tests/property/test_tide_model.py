"""TIDE against its definition: values out of the times of all uses, and victims out of values, after any calls."""

import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from math import inf, log2

import pytest

from blockyard.core.eviction.base import RowColumns
from blockyard.core.eviction.tide import TidePolicy
from blockyard.core.eviction.tide_history import HALF_LIVES, keep_value
from blockyard.core.stored_key import stored_keys
from blockyard.core.vocabulary import BlockId, ContentKey, GroupId
from blockyard.testing.eviction_driver import STEPS, EvictionDriver

Name = tuple[bytes, int]
Key = tuple[float, int, int]


class Model:
    """What TIDE says it does, as directly as possible; which half-life leads is told."""

    def __init__(self, columns: RowColumns) -> None:
        self.columns = columns
        self.half_life = 0.0
        self.created = 0
        self.uses: dict[BlockId, list[float]] = {}
        self.rings: dict[int, deque[Name | None]] = defaultdict(lambda: deque(maxlen=16))
        """Of each bucket those that left last; None in the place of one that came back."""
        self.departed: dict[Name, list[float]] = {}
        self.runs: dict[int, list[BlockId]] = {}
        self.keys: dict[int, Key] = {}
        self.made = 0

    def name(self, row: BlockId) -> Name:
        return self.columns.keys_of([row])[0], self.columns.groups_of([row])[0]

    def value(self, row: BlockId, half_life: float) -> float:
        times = self.uses[row]
        last = max(times)
        left = [2 ** ((time - last) / half_life) for time in times]
        return log2(left[0] / 16 + sum(left[1:])) + last / half_life

    def key(self, run: int) -> Key:
        tail = self.runs[run][-1]
        if run < 0:
            return -inf, 0, run
        return round(self.value(tail, self.half_life), 9), -self.columns.positions_of([tail])[0], run

    def touch(self, rows: Sequence[BlockId]) -> None:
        now = self.created / self.columns.capacity
        for row in rows:
            if row not in self.uses:
                self.created += 1
                self.uses[row] = self.come_back(self.name(row))
            self.uses[row].append(now)

    def insert(self, rows: Sequence[BlockId]) -> None:
        for row in rows:
            if row not in self.uses:
                self.come_back(self.name(row))
                self.uses[row] = [self.created / self.columns.capacity]
        if rows:
            self.made += 1
            self.runs[self.made] = list(rows)
            self.keys[self.made] = self.key(self.made)

    def put_back(self, rows: Sequence[BlockId]) -> None:
        if rows:
            self.made += 1
            self.runs[-self.made] = list(reversed(rows))
            self.keys[-self.made] = self.key(-self.made)

    def remove(self, rows: Sequence[BlockId]) -> None:
        for run, held in list(self.runs.items()):
            self.runs[run] = [row for row in held if row not in rows]
            if not self.runs[run]:
                del self.runs[run], self.keys[run]

    def rank_by(self, half_life: float) -> None:
        if half_life != self.half_life:
            self.half_life = half_life
            self.keys = {run: self.key(run) for run in self.runs}

    def take(self, count: int) -> list[BlockId]:
        taken: list[BlockId] = []
        while self.runs and len(taken) < count:
            run = min(self.keys, key=self.keys.__getitem__)
            self.keys[run] = self.key(run)
            if run == min(self.keys, key=self.keys.__getitem__):
                taken.append(self.runs[run][-1])
                self.remove(taken[-1:])
        return taken

    def forget(self, rows: Sequence[BlockId]) -> None:
        names = list(map(self.name, rows))
        for name, row in zip(names, rows, strict=True):
            ring = self.ring(name)
            if len(ring) == ring.maxlen and (oldest := ring[0]) is not None:
                del self.departed[oldest]
            ring.append(name)
            self.departed[name] = self.uses.pop(row)

    def come_back(self, name: Name) -> list[float]:
        ring = self.ring(name)
        if name in ring:
            ring[ring.index(name)] = None
        return self.departed.pop(name, [])

    def ring(self, name: Name) -> "deque[Name | None]":
        (stored,) = stored_keys([ContentKey(name[0])], GroupId(name[1]))
        buckets = -(-4 * self.columns.capacity // 16)
        return self.rings[int.from_bytes(stored[8:], "little", signed=True) % buckets]


class Mirrored:
    """The policy with the model beside it: every answer and every value must be the same."""

    leaders: Counter[float] = Counter()

    def __init__(self, columns: RowColumns) -> None:
        self.tide = TidePolicy(columns)
        self.model = Model(columns)
        self.model.rank_by(self.tide.half_life)

    def __len__(self) -> int:
        return len(self.tide)

    def __iter__(self) -> Iterator[BlockId]:
        return iter(self.tide)

    def touch(self, blocks: Sequence[BlockId]) -> None:
        self.tide.touch(blocks)
        self.model.touch(blocks)
        self.model.rank_by(self.tide.half_life)
        self.leaders[self.tide.half_life] += 1
        self.compare_values(blocks)

    def insert(self, blocks: Sequence[BlockId]) -> None:
        self.tide.insert(blocks)
        self.model.insert(blocks)
        self.compare_values(blocks)

    def remove(self, blocks: Sequence[BlockId]) -> None:
        self.tide.remove(blocks)
        self.model.remove(blocks)

    def take(self, count: int) -> list[BlockId]:
        taken = self.tide.take(count)
        assert taken == self.model.take(count)
        return taken

    def put_back(self, blocks: Sequence[BlockId]) -> None:
        self.tide.put_back(blocks)
        self.model.put_back(blocks)

    def forget(self, blocks: Sequence[BlockId]) -> None:
        self.tide.forget(blocks)
        self.model.forget(blocks)

    def compare_values(self, rows: Sequence[BlockId]) -> None:
        for row in rows:
            history = self.tide._histories[row]
            assert history is not None
            for index, half_life in enumerate(HALF_LIVES):
                assert keep_value(history, index) == pytest.approx(self.model.value(row, half_life), abs=1e-6)


def test_values_and_victims_are_those_of_the_definition() -> None:
    done: dict[str, int] = defaultdict(int)
    Mirrored.leaders.clear()
    for seed in range(4):
        chance = random.Random(seed)
        driver = EvictionDriver(Mirrored, capacity=(3, 6, 12, 20)[seed])
        for _ in range(1000):
            driver.step(chance.choice(tuple(STEPS)), chance.randrange)
        for name, count in driver.done.items():
            done[name] += count
    assert set(done) == set(STEPS)
    assert len(Mirrored.leaders) > 1, "the race has changed no leader"
