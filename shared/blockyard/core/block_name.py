"""How a block is named in jobs and plans: its full chain digest, its parent and its position.

A ``ChainRun`` names consecutive blocks; jobs pick single blocks out of runs, so they carry one name per item.
Invariants: as in ``ChainRun``: only position 0 has the root as parent. Threading: frozen values.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from blockyard.core.chain_run import ChainRun
from blockyard.core.vocabulary import ChainDigest, ContentKey, key_of


@dataclass(frozen=True, slots=True)
class BlockName:
    """One block: what is compared when its bytes are read, and where it stands in its chain."""

    digest: ChainDigest
    parent: ContentKey
    position: int

    @property
    def key(self) -> ContentKey:
        """Content key: first half of the digest."""
        return key_of(self.digest)


def names_of(run: ChainRun, indexes: Iterable[int] | None = None) -> tuple[BlockName, ...]:
    """Names of the blocks of a run; of those at ``indexes`` where given."""
    chosen = range(len(run)) if indexes is None else indexes
    return tuple(BlockName(run.digest(i), run.parent_of(i), run.first_position + i) for i in chosen)


def select(names: Sequence[BlockName], indexes: Iterable[int]) -> tuple[BlockName, ...]:
    """The names at ``indexes``, in that order."""
    return tuple(names[index] for index in indexes)
