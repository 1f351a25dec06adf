"""The eight fences between an engine's compute and copies of its blocks; nowhere else is their order decided.

A checksum proves nothing about ordering: bytes that were copied too early or too late are certified like any others.
Each rule is one method, and everything that moves blocks of an engine calls it. The test kit can leave one out, to show
that the rule is needed; nothing else does.
Threading: values and single calls; that of the device.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum, unique
from typing import Final, final

from blockyard.core.vocabulary import EngineBlockId
from blockyard.tiers.device.base import Event, SourceOrder, Stream


@unique
class Fence(IntEnum):
    """The rules by number."""

    STORE_AFTER_STEP = 1
    LOAD_AFTER_COMPUTE = 2
    REWRITE_AFTER_STORE = 3
    ENDS_ARE_QUERIED = 4
    READS_IN_STREAM_ORDER = 5
    FREED_BLOCKS_REST = 6
    EVERY_ALLOCATION_COUNTS = 7
    EVENTS_STAY_OWNED = 8


@final
class Fences:
    """All eight, but for those that a test leaves out."""

    def __init__(self, without: Iterable[Fence] = ()) -> None:
        """All fences are up, except ``without``."""
        self._up: Final = frozenset(Fence) - frozenset(without)

    def store_after_step(self, store: Stream, step: Event) -> None:
        """1: the store stream waits for the compute event of the step that wrote the block."""
        if Fence.STORE_AFTER_STEP in self._up:
            store.wait(step)

    def load_after_compute(self, load: Stream, compute: Event) -> None:
        """2: the load stream waits for the compute stream as it is at the submission (``compute`` recorded there)."""
        if Fence.LOAD_AFTER_COMPUTE in self._up:
            load.wait(compute)

    def rewrite_after_store(self, compute: Stream, ends: Iterable[Event]) -> None:
        """3: compute waits, on the device, for the ends of stores before their source blocks are rewritten."""
        if Fence.REWRITE_AFTER_STORE in self._up:
            for end in ends:
                compute.wait(end)

    def has_ended(self, end: Event) -> bool:
        """4: a copy is reported only when its end event was queried done."""
        return end.query() if Fence.ENDS_ARE_QUERIED in self._up else True

    def ended_everywhere(self, ended_ranks: int, ranks: int) -> bool:
        """4: and only when it is so in every rank."""
        return ended_ranks == ranks if Fence.ENDS_ARE_QUERIED in self._up else ended_ranks > 0

    @property
    def source_order(self) -> SourceOrder:
        """5: copies keep stream-ordered source reads."""
        return SourceOrder.STREAM if Fence.READS_IN_STREAM_ORDER in self._up else SourceOrder.ANY

    def may_touch(self, last_step_when_freed: int, last_step_processed: int) -> bool:
        """6: a block freed while a step is in flight is neither source nor target until its output was processed."""
        return last_step_processed >= last_step_when_freed or Fence.FREED_BLOCKS_REST not in self._up

    def reused(self, ours: Sequence[EngineBlockId], others: Sequence[EngineBlockId]) -> tuple[EngineBlockId, ...]:
        """7: every allocation seen counts as reuse, ours or one for somebody else's loads."""
        return (*ours, *others) if Fence.EVERY_ALLOCATION_COUNTS in self._up else tuple(ours)

    def events_stay_owned(self) -> bool:
        """8: an event is owned by its producer until the consumer's acknowledgement, and only then used again."""
        return Fence.EVENTS_STAY_OWNED in self._up
