"""What became of a load, block by block.

A status that this version does not know counts as unknown, never as loaded. Threading: frozen values.
"""

from dataclasses import dataclass
from typing import Final, final

from blockyard.core.vocabulary import ItemStatus, Tier
from blockyard.wire.connector_channel import LoadFinished

_STATUS: Final = {int(value): value for value in ItemStatus}
_TIERS: Final = {int(value): value for value in Tier}


@final
@dataclass(frozen=True, slots=True)
class LoadResult:
    """End of a load: per block a status and the tier its bytes came from (None where nothing was loaded)."""

    statuses: tuple[ItemStatus, ...]
    sources: tuple[Tier | None, ...]

    @property
    def usable(self) -> int:
        """Length of the run of loaded blocks from the start: the part that is a valid prefix."""
        return next(
            (index for index, status in enumerate(self.statuses) if status is not ItemStatus.OK), len(self.statuses)
        )

    @classmethod
    def unknown(cls, blocks: int) -> "LoadResult":
        """Result of a load about which nothing is known."""
        return cls((ItemStatus.UNKNOWN,) * blocks, (None,) * blocks)

    @classmethod
    def of(cls, finished: LoadFinished, blocks: int) -> "LoadResult":
        """Result as pushed for a load of ``blocks`` blocks; of another length it says nothing about any of them."""
        if len(finished.status) != blocks or len(finished.sources) != blocks:
            return cls.unknown(blocks)
        statuses = tuple(_STATUS.get(value, ItemStatus.UNKNOWN) for value in finished.status)
        return cls(statuses, tuple(_TIERS.get(value) for value in finished.sources))
