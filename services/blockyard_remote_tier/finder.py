"""Answers lookups from the prefix index: in the object store, a miss, or not known.

*Miss* is said only while the index is complete and describes the store that is open; every error and every doubt is
*unknown*. So is everything while the store does not answer: what cannot be read now is no hit.
Threading: one event loop.
"""

import random
from collections.abc import Callable, Sequence
from typing import Final

from blockyard.core.block_facts import MAX_GROUP
from blockyard.core.errors import RequestError, TooManyKeysError, UnavailableError
from blockyard.core.stored_key import StoredKey, stored_keys
from blockyard.core.vocabulary import DIGEST_BYTES, KEY_BYTES, Availability, ContentKey, GroupId, IdentityDigest, Tier
from blockyard.runtime.current_trace import current_trace
from blockyard.runtime.span_names import BLOCKS, HITS, MISSES, UNKNOWN, SpanName
from blockyard.runtime.spans import SpanKind, Tracer
from blockyard.runtime.telemetry import LookupOutcome, Metrics
from blockyard.tiers.index_value import Locator, encode_wire_locators
from blockyard.tiers.prefix_index import PrefixIndex
from blockyard.wire.codec import MAX_KEYS_PER_CALL
from blockyard.wire.worker_channel import Find, Found
from blockyard_remote_tier.index_writes import IndexWrites, Touch
from blockyard_remote_tier.open_store import OpenStore
from blockyard_remote_tier.pack_register import PackRegister

_TOUCHED_ONE_IN: Final = 16
"""Share of lookups whose hits are marked as in use."""
_OUTCOMES: Final = {
    Availability.G4: LookupOutcome.HIT,
    Availability.MISS: LookupOutcome.MISS,
    Availability.UNKNOWN: LookupOutcome.UNKNOWN,
}


class Finder:
    """Executes ``Find``."""

    def __init__(
        self,
        index: PrefixIndex,
        opened: OpenStore,
        writes: IndexWrites,
        register: PackRegister,
        *,
        metrics: Metrics,
        tracer: Tracer,
        incomplete: Callable[[], None],
        readable: Callable[[], bool],
        chance: random.Random,
    ) -> None:
        """Ask ``index`` while the store is ``readable``; ``incomplete`` is called where it does not know everything."""
        self._index = index
        self._opened = opened
        self._writes = writes
        self._register = register
        self._metrics = metrics
        self._tracer = tracer
        self._incomplete = incomplete
        self._readable = readable
        self._chance = chance

    async def find(self, request: Find) -> Found:
        """Look keys up in one round trip.

        Raises:
            RequestError: identity or keys have the wrong length, or there is no such group.
            TooManyKeysError: more keys than one call may have.
        """
        identity, keys = _columns(request)
        with self._tracer.start(SpanName.INDEX_FIND, current_trace(), SpanKind.SERVER, {BLOCKS: len(keys)}) as span:
            found = await self._look_up(identity, keys)
            answers = found.availability
            span.set(
                {
                    f"{HITS}.{Tier.G4.label}": answers.count(Availability.G4),
                    MISSES: answers.count(Availability.MISS),
                    UNKNOWN: answers.count(Availability.UNKNOWN),
                }
            )
        return found

    async def _look_up(self, identity: IdentityDigest, keys: Sequence[StoredKey]) -> Found:
        locators, absent = await self._ask(identity, keys)
        locators = [self._believed(locator) for locator in locators]
        self._learn(identity, keys, locators)
        availability = [absent if locator is None else Availability.G4 for locator in locators]
        for answer, outcome in _OUTCOMES.items():
            self._metrics.index_lookup_blocks.labels(outcome).inc(availability.count(answer))
        return Found(availability=bytes(availability), locators=encode_wire_locators(locators))

    async def _ask(
        self, identity: IdentityDigest, keys: Sequence[StoredKey]
    ) -> tuple[Sequence[Locator | None], Availability]:
        """Locators, and what an absent one means."""
        nothing: list[Locator | None] = [None] * len(keys)
        marker = self._opened.marker
        if marker is None:
            self._incomplete()
            return nothing, Availability.UNKNOWN
        if not self._readable():
            return nothing, Availability.UNKNOWN
        try:
            answer = await self._index.find(identity, keys)
        except UnavailableError:
            return nothing, Availability.UNKNOWN
        if answer.meta.is_complete(marker.store_id):
            return answer.locators, Availability.MISS
        self._incomplete()
        return (answer.locators if answer.meta.may_describe(marker.store_id) else nothing), Availability.UNKNOWN

    def _believed(self, locator: Locator | None) -> Locator | None:
        # Its locators may still be there while the index cannot be written.
        return None if locator is not None and self._register.is_damaged(locator.pack) else locator

    def _learn(self, identity: IdentityDigest, keys: Sequence[StoredKey], locators: Sequence[Locator | None]) -> None:
        hits = [(key, locator) for key, locator in zip(keys, locators, strict=True) if locator is not None]
        for key, locator in hits:
            self._register.learn(locator.pack, (key,))
        if hits and self._chance.randrange(_TOUCHED_ONE_IN) == 0:
            self._writes.touch_later(Touch(identity, tuple(key for key, _ in hits)))


def _columns(request: Find) -> tuple[IdentityDigest, list[StoredKey]]:
    if len(request.identity) != DIGEST_BYTES or len(request.keys) % KEY_BYTES:
        raise RequestError("an identity has 32 bytes and keys have 16", identity=len(request.identity))
    if not 0 <= request.group <= MAX_GROUP:
        raise RequestError("a group is an unsigned 16-bit integer", group=request.group)
    count = len(request.keys) // KEY_BYTES
    if count > MAX_KEYS_PER_CALL:
        raise TooManyKeysError("too many keys in one lookup", keys=count, limit=MAX_KEYS_PER_CALL)
    keys = (ContentKey(request.keys[index * KEY_BYTES : (index + 1) * KEY_BYTES]) for index in range(count))
    return IdentityDigest(request.identity), stored_keys(keys, GroupId(request.group))
