"""What the connector did since it was last asked, as plain numbers for the engine's metrics.

Threading: the scheduler's thread.
"""

from typing import Final, final

from blockyard.connectors.vllm.prefix_hit import Found
from blockyard.core.miss_reason import MissReason
from blockyard.core.vocabulary import Availability

COUNTERS: Final = {
    "blocks_registered": "Blocks that the engine completed and offered to the node",
    "blocks_stored": "Blocks that the ranks of the engine copied into slots of the node (executor engine)",
    "blocks_not_stored": "Blocks that were reused before there was a slot for them, or not copied (executor engine)",
    "blocks_loaded": "Blocks loaded from the node",
    "bytes_loaded": "Bytes loaded from the node",
    "blocks_failed": "Blocks whose load failed",
    "lookups_hit": "Lookups that found the first block of a prompt or more",
    "lookups_miss": "Lookups that found nothing",
    "lookups_unknown": "Lookups that the node did not answer",
}
"""Names and meanings of the counters without labels."""
DECISIONS: Final = "decisions"
"""Prefix of the counters by reason."""


@final
class ConnectorCounts:
    """Counts since the last ``take``."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._counts: dict[str, int] = {}

    def _add(self, name: str, count: int) -> None:
        if count:
            self._counts[name] = self._counts.get(name, 0) + count

    def registered(self, rows: int) -> None:
        """Rows were announced to the node."""
        self._add("blocks_registered", rows)

    def stored(self, rows: int) -> None:
        """The ranks have copied rows."""
        self._add("blocks_stored", rows)

    def skipped(self, rows: int) -> None:
        """Rows that could have been copied were not."""
        self._add("blocks_not_stored", rows)

    def loaded(self, rows: int, bytes_count: int, failed_rows: int) -> None:
        """A load ended."""
        self._add("blocks_loaded", rows)
        self._add("bytes_loaded", bytes_count)
        self._add("blocks_failed", failed_rows)

    def looked_up(self, found: Found | None) -> None:
        """A lookup was answered, or will not be."""
        if found is None:
            self._add("lookups_unknown", 1)
        elif any(column and column[0].is_hit for column in found):
            self._add("lookups_hit", 1)
        elif any(Availability.UNKNOWN in column for column in found):
            self._add("lookups_unknown", 1)
        else:
            self._add("lookups_miss", 1)

    def decided(self, reason: MissReason) -> None:
        """A request was admitted, and its hit ended for this reason."""
        self._add(f"{DECISIONS}:{reason.value}", 1)

    def take(self) -> dict[str, int]:
        """The counts, which begin again at zero."""
        counts, self._counts = self._counts, {}
        return counts
