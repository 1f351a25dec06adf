"""The engine memories that this process has mapped, by the number the block-manager gave them.

Invariants: numbers are unique among the mapped ones; the worker server unmaps a number only when no job uses it.
Threading: event loop only; the mapped bytes are read and written by the copy thread.
"""

from blockyard.core.errors import UnknownMappingError
from blockyard.tiers.g1_mapping import G1Mapping


class EngineMappings:
    """Table of mapped engine memories; owns them."""

    def __init__(self) -> None:
        """Start with none."""
        self._mappings: dict[int, G1Mapping] = {}

    def __len__(self) -> int:
        """Number of mapped engine memories."""
        return len(self._mappings)

    def add(self, number: int, mapping: G1Mapping) -> None:
        """Own ``mapping`` under ``number``; one that had this number is unmapped."""
        self.remove(number)
        self._mappings[number] = mapping

    def get(self, number: int) -> G1Mapping:
        """The mapping with this number.

        Raises:
            UnknownMappingError: there is none.
        """
        mapping = self._mappings.get(number)
        if mapping is None:
            raise UnknownMappingError("no such engine mapping", mapping=number)
        return mapping

    def remove(self, number: int) -> None:
        """Unmap; nothing happens where there is no such number."""
        mapping = self._mappings.pop(number, None)
        if mapping is not None:
            mapping.close()

    def close(self) -> None:
        """Unmap everything. Idempotent."""
        for number in list(self._mappings):
            self.remove(number)
