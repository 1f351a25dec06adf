"""A router's view of who holds what, against Dynamo's radix tree: a million blocks, 64 engines, chains of 64 blocks.

Both sides hold the same chains, each by one engine, and take events as the bytes that a bus brings. Theirs are JSON, as
its binding wants them; ours are what block-managers publish. Encoding is the work of the senders and is not counted.
"""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench.errors import MissingPeerError, WrongBytesError
from bench.measure import Contest, Measure, Timed, skipped
from bench.peers.chains import block_hashes
from bench.peers.child import Peer
from blockyard.core.events import BlockColumns, BlockScope, EventOwner, OwnerKind, StoredEvent
from blockyard.core.holder_index import HolderIndex
from blockyard.core.vocabulary import ROOT_KEY, ContentKey, Epoch, EventSeq, IdentityDigest, Tier
from blockyard.wire.event_codec import decode_event, encode_event

BLOCKS: Final = 1_000_000
DEPTH: Final = 64
ENGINES: Final = 64
INGESTED_CHAINS: Final = 2_000
LOOKUPS: Final = 2_000
ROUNDS: Final = 9
_SEED: Final = 7
_BATCH: Final = 64
_IDENTITY: Final = IdentityDigest(b"bench".ljust(32, b"\0"))
_PACKAGE: Final = "ai-dynamo-runtime"
_AGAINST: Final = "Dynamo's RadixTree"
_BARS: Final = {"lookup": (0.5, 1.0), "miss": (0.5, 1.0), "apply": (1.0, 3.0)}


def run(case: str) -> Iterator[Measure]:
    """Lookups and events per second of a router's view of a million blocks, against Dynamo's radix tree."""
    chains = BLOCKS // DEPTH
    try:
        with Peer("dynamo_radix", _PACKAGE, chains=chains, depth=DEPTH, workers=ENGINES, seed=_SEED) as peer:
            view = _View(chains)
            for chain in range(ENGINES):
                _compare(view, peer, chain)
            for contest in _contests(view, peer):
                yield contest.run(case, ROUNDS)
    except MissingPeerError as missing:
        for measure in _BARS:
            yield skipped(case, measure, _AGAINST, str(missing))


def _contests(view: "_View", peer: Peer) -> Iterator[Contest]:
    sides = {
        "lookup": ("lookups", view.lookup, lambda: peer.round("lookup", lookups=LOOKUPS)),
        "miss": ("lookups", view.miss, lambda: peer.round("miss", lookups=LOOKUPS)),
        "apply": ("blocks", view.apply, lambda: peer.round("ingest", chains=INGESTED_CHAINS)),
    }
    for measure, (unit, ours, theirs) in sides.items():
        bar, stretch = _BARS[measure]
        yield Contest(
            measure=measure,
            unit=unit,
            ours=ours,
            theirs=theirs,
            against=f"{_AGAINST} {peer.version}",
            bar=bar,
            stretch=stretch,
        )


def _compare(view: "_View", peer: Peer, chain: int) -> None:
    """Both sides must say the same of a chain before anything is timed."""
    theirs = {_engine(int(worker)): blocks for worker, blocks in peer.ask("matches", chain=chain).items()}
    if view.matches(chain) != theirs:
        raise WrongBytesError(f"chain {chain} is held by {theirs} there and by {view.matches(chain)} here")


@dataclass(frozen=True, slots=True)
class _Chain:
    keys: tuple[ContentKey, ...]
    message: bytes


class _View:
    """Ours."""

    def __init__(self, chains: int) -> None:
        self.random = random.Random(_SEED)
        self.chains = [_chain(number, 1 + number // ENGINES) for number in range(chains)]
        self.index = _filled([chain.message for chain in self.chains])

    def lookup(self) -> Timed:
        asked = [_asked(chain.keys) for chain in self.random.choices(self.chains, k=LOOKUPS)]
        find = self.index.longest_prefix
        begin = time.perf_counter()
        for keys in asked:
            found = find(_IDENTITY, keys)
        seconds = time.perf_counter() - begin
        if [match.blocks for match in found] != [DEPTH]:
            raise WrongBytesError(f"a chain that is held was found as {found}")
        return Timed(LOOKUPS, seconds)

    def miss(self) -> Timed:
        asked = [[ContentKey(self.random.randbytes(16)) for _ in range(DEPTH)] for _ in range(LOOKUPS)]
        find = self.index.longest_prefix
        begin = time.perf_counter()
        for keys in asked:
            found = find(_IDENTITY, keys)
        seconds = time.perf_counter() - begin
        if found:
            raise WrongBytesError(f"a chain of nobody was found as {found}")
        return Timed(LOOKUPS, seconds)

    def apply(self) -> Timed:
        messages = [chain.message for chain in self.chains[:INGESTED_CHAINS]]
        begin = time.perf_counter()
        index = _filled(messages)
        seconds = time.perf_counter() - begin
        if index.blocks != len(messages) * DEPTH:
            raise WrongBytesError(f"of {len(messages)} chains the index has {index.blocks} blocks")
        return Timed(index.blocks, seconds)

    def matches(self, chain: int) -> dict[EventOwner, int]:
        found = self.index.longest_prefix(_IDENTITY, self.chains[chain].keys)
        return {reader: match.blocks for match in found for reader in match.readers}


def _filled(messages: Sequence[bytes]) -> HolderIndex:
    index = HolderIndex()
    for number in range(ENGINES):
        index.credit(_node(number), (_engine(number),))
    for start in range(0, len(messages), _BATCH):
        index.apply([decode_event(message) for message in messages[start : start + _BATCH]])
    return index


def _chain(number: int, seq: int) -> _Chain:
    keys = tuple(ContentKey(value.to_bytes(16, "big")) for value in block_hashes(number, DEPTH, seed=_SEED))
    columns = BlockColumns.of(keys, (ROOT_KEY, *keys[:-1]), tuple(range(DEPTH)))
    engine = number % ENGINES
    event = StoredEvent(_engine(engine), Tier.G1, BlockScope(_IDENTITY, block_tokens=16), columns)
    return _Chain(keys, encode_event(_node(engine), Epoch(1), EventSeq(seq), event))


def _asked(keys: Sequence[ContentKey]) -> list[ContentKey]:
    """The same keys as other objects, as a router has computed them."""
    return [ContentKey(bytes(bytearray(key))) for key in keys]


def _engine(number: int) -> EventOwner:
    return EventOwner(OwnerKind.ENGINE, f"engine-{number}")


def _node(number: int) -> str:
    return f"node-{number}"
