"""What an engine holds in G1 under which name: kept by the client so that it can be announced again.

A restarted block-manager knows nothing of an engine's blocks until the engine sends its whole set.
Invariants: one entry per engine block; runs are cut so that each is one stretch of one chain and fits one call.
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

    def __len__(self) -> int:
        """Number of registered blocks."""
        return len(self._entries)

    def add(self, registered: RegisteredRun) -> None:
        """Enter the blocks of a run; an engine block that held another name takes the new one."""
        run = registered.run
        for index, block in enumerate(registered.blocks):
            self._entries.pop(block, None)
            self._entries[block] = _Entry(
                run.digest(index), run.parent_of(index), run.first_position + index, registered.tenant
            )

    def discard(self, blocks: Sequence[EngineBlockId]) -> None:
        """Forget blocks; unknown ones are ignored."""
        for block in blocks:
            self._entries.pop(block, None)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def runs(self, limit: int) -> Iterator[RegisteredRun]:
        """The whole set as runs of at most ``limit`` blocks, in order of registration."""
        blocks: list[EngineBlockId] = []
        entries: list[_Entry] = []
        for block, entry in self._entries.items():
            last = entries[-1] if entries else None
            if last is not None and (len(entries) == limit or not _follows(last, entry)):
                yield _run_of(blocks, entries)
                blocks, entries = [], []
            blocks.append(block)
            entries.append(entry)
        if entries:
            yield _run_of(blocks, entries)


def _follows(last: _Entry, entry: _Entry) -> bool:
    return entry.parent == key_of(last.digest) and entry.tenant == last.tenant


def _run_of(blocks: list[EngineBlockId], entries: list[_Entry]) -> RegisteredRun:
    run = ChainRun(b"".join(entry.digest for entry in entries), entries[0].position, entries[0].parent)
    return RegisteredRun(run, entries[0].tenant, tuple(blocks))
