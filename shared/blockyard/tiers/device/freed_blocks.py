"""Blocks that were freed while a step was in flight: nobody touches them before that step's output was processed.

An engine that schedules ahead frees blocks of a request which steps under way still read and write. A copy that no
stream orders behind those steps, such as one by another process, may neither read nor write such a block yet.
Invariants: steps are counted upwards and processed in order; a block that is freed again waits for the later step.
Threading: the scheduler's thread.
"""

from collections.abc import Iterable
from typing import final

from blockyard.core.errors import BlockStateError
from blockyard.core.vocabulary import EngineBlockId
from blockyard.tiers.device.fences import Fences


@final
class FreedBlocks:
    """Blocks of one engine that still rest."""

    def __init__(self, fences: Fences) -> None:
        """Begin with no step scheduled."""
        self._fences = fences
        self._scheduled = self._processed = 0
        self._freed: dict[EngineBlockId, int] = {}

    @property
    def resting(self) -> int:
        """Blocks that wait for a step."""
        return len(self._freed)

    def step_scheduled(self) -> int:
        """A step was handed to the ranks; its number, counted from 1."""
        self._scheduled += 1
        return self._scheduled

    def step_processed(self) -> None:
        """The output of the oldest step in flight was processed: no rank works on it any more.

        Raises:
            BlockStateError: no step is in flight.
        """
        if self._processed == self._scheduled:
            raise BlockStateError("no step is in flight", processed=self._processed)
        self._processed += 1
        self._freed = {block: step for block, step in self._freed.items() if step > self._processed}

    def freed(self, blocks: Iterable[EngineBlockId]) -> None:
        """These blocks were freed now, for whatever reason."""
        if self._scheduled > self._processed:
            self._freed.update(dict.fromkeys(blocks, self._scheduled))

    def may_touch(self, blocks: Iterable[EngineBlockId]) -> bool:
        """Whether all of these may be sources or targets of copies now."""
        return all(self._fences.may_touch(self._freed.get(block, 0), self._processed) for block in blocks)
