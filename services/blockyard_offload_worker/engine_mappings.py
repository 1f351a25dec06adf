"""The engine memories that this process has mapped, by the number the block-manager gave them.

A mapping that a job uses stays mapped until the job has ended: unmapping it earlier would turn a copy into a crash.
Retiring takes it out of the table at once, so no further job can begin to use it.

Invariants: a mapping is closed exactly once, when it is retired and unused. Threading: one event loop; the mapped
bytes themselves are read and written by the copy thread while ``use`` is held.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from blockyard.core.errors import UnknownMappingError
from blockyard.tiers.g1_mapping import G1Mapping


class _Entry:
    """One mapping with the number of jobs that use it."""

    __slots__ = ("closed", "mapping", "retired", "users")

    def __init__(self, mapping: G1Mapping) -> None:
        self.mapping = mapping
        self.users = 0
        self.retired = False
        self.closed = asyncio.Event()

    def close_if_unused(self) -> None:
        if self.retired and not self.users and not self.closed.is_set():
            self.mapping.close()
            self.closed.set()


class EngineMappings:
    """Table of mapped engine memories."""

    def __init__(self) -> None:
        """Start with none."""
        self._entries: dict[int, _Entry] = {}
        self._retired: set[_Entry] = set()

    def __len__(self) -> int:
        """Number of mappings that jobs can use."""
        return len(self._entries)

    def add(self, number: int, mapping: G1Mapping) -> None:
        """Own ``mapping`` under ``number``; one with the same number is retired."""
        self._retire(number)
        self._entries[number] = _Entry(mapping)

    @contextmanager
    def use(self, number: int) -> Iterator[G1Mapping]:
        """Keep a mapping mapped while a job uses it.

        Raises:
            UnknownMappingError: there is none with this number.
        """
        entry = self._entries.get(number)
        if entry is None:
            raise UnknownMappingError("no such engine mapping", mapping=number)
        entry.users += 1
        try:
            yield entry.mapping
        finally:
            entry.users -= 1
            self._close_if_unused(entry)

    async def remove(self, number: int) -> None:
        """Retire a mapping and return when it is unmapped; nothing happens where there is none."""
        entry = self._retire(number)
        if entry is not None:
            await entry.closed.wait()

    def retire_all(self) -> None:
        """Retire every mapping; each is unmapped as soon as no job uses it."""
        for number in list(self._entries):
            self._retire(number)

    async def close(self) -> None:
        """Retire every mapping and wait until all are unmapped."""
        self.retire_all()
        for entry in list(self._retired):
            await entry.closed.wait()

    def _retire(self, number: int) -> _Entry | None:
        entry = self._entries.pop(number, None)
        if entry is not None:
            entry.retired = True
            self._retired.add(entry)
            self._close_if_unused(entry)
        return entry

    def _close_if_unused(self, entry: _Entry) -> None:
        entry.close_if_unused()
        if entry.closed.is_set():
            self._retired.discard(entry)
