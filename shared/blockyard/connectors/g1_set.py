"""What an engine holds in G1 under which name: kept by the client so that it can be announced again.

A restarted block-manager knows nothing of an engine's blocks until the engine sends its whole set. The engine goes on
registering and freeing blocks meanwhile, so the set is handed out run by run, each as it is at that moment.
Invariants: one entry per engine block; runs are cut so that each is one stretch of one chain and fits one call; a block
that left the set, or was registered anew, is not handed out any more.
Threading: owned by the client's event loop.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

from blockyard.core.chain_run import ChainRun
from blockyard.core.vocabulary import ChainDigest, ContentKey, EngineBlockId, TenantDigest, key_of


@final
@dataclass(frozen=True, slots=True)
class _Entry:
    digest: ChainDigest
    parent: ContentKey
    position: int
    tenant: TenantDigest


@final
@dataclass(frozen=True, slots=True)
class RegisteredRun:
    """Blocks of one chain and where they lie in G1."""

    run: ChainRun
    tenant: TenantDigest
    blocks: tuple[EngineBlockId, ...]


class G1Set:
    """Registered blocks of one engine."""

    def __init__(self) -> None:
        """Start empty."""
        self._entries: dict[EngineBlockId, _Entry] = {}
        self._unannounced: dict[EngineBlockId, _Entry] = {}

    def __len__(self) -> int:
        """Number of registered blocks."""
        return len(self._entries)

    def registered(self, blocks: Sequence[EngineBlockId]) -> set[EngineBlockId]:
        """Those of the blocks that hold a name."""
        return {block for block in blocks if block in self._entries}

    def add(self, registered: RegisteredRun) -> None:
        """Enter the blocks of a run, which the caller announces; a block that held another name takes the new one."""
        for block, entry in _entries_of(registered):
            self._forget(block)
            self._entries[block] = entry

    def withdraw(self, registered: RegisteredRun) -> None:
        """Take back what ``add`` entered, as far as the blocks were not registered anew."""
        for block, entry in _entries_of(registered):
            if self._entries.get(block) == entry:
                self._forget(block)

    def discard(self, blocks: Sequence[EngineBlockId]) -> None:
        """Forget blocks; unknown ones are ignored."""
        for block in blocks:
            self._forget(block)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._unannounced.clear()

    def announce_all(self) -> None:
        """Nobody knows of the set: ``next_run`` hands all of it out."""
        self._unannounced = dict(self._entries)

    def next_run(self, limit: int) -> RegisteredRun | None:
        """At most ``limit`` blocks that were not handed out yet, in order of registration; None when all were."""
        blocks: list[EngineBlockId] = []
        entries: list[_Entry] = []
        for block, entry in self._unannounced.items():
            if len(entries) == limit or (entries and not _follows(entries[-1], entry)):
                break
            blocks.append(block)
            entries.append(entry)
        for block in blocks:
            del self._unannounced[block]
        return _run_of(blocks, entries) if entries else None

    def _forget(self, block: EngineBlockId) -> None:
        self._entries.pop(block, None)
        self._unannounced.pop(block, None)


def _entries_of(registered: RegisteredRun) -> Iterator[tuple[EngineBlockId, _Entry]]:
    run = registered.run
    for index, block in enumerate(registered.blocks):
        position = run.first_position + index
        yield block, _Entry(run.digest(index), run.parent_of(index), position, registered.tenant)


def _follows(last: _Entry, entry: _Entry) -> bool:
    return entry.parent == key_of(last.digest) and entry.tenant == last.tenant


def _run_of(blocks: list[EngineBlockId], entries: list[_Entry]) -> RegisteredRun:
    run = ChainRun(b"".join(entry.digest for entry in entries), entries[0].position, entries[0].parent)
    return RegisteredRun(run, entries[0].tenant, tuple(blocks))
