"""Which blocks a write-through store copies, and in which jobs.

Policy of this version: every registered block that the lower tier neither holds nor is about to hold is copied, in
chain order, so that what is stored stays closed under prefixes: where room ends, the tail is left out, never a middle.
Pure functions over columns of flags. Threading: no state.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from blockyard.core.errors import RequestError


@dataclass(frozen=True, slots=True)
class StorePlan:
    """Indexes of the blocks to copy, cut into jobs, and of those for which there was no room."""

    jobs: tuple[tuple[int, ...], ...]
    left_out: tuple[int, ...]

    @property
    def planned(self) -> int:
        """Number of blocks that will be copied."""
        return sum(len(job) for job in self.jobs)


def batches(indexes: Sequence[int], max_items: int) -> tuple[tuple[int, ...], ...]:
    """Cut ``indexes`` into consecutive batches of at most ``max_items``."""
    if max_items < 1:
        raise RequestError("a job holds at least one item", max_items=max_items)
    return tuple(tuple(indexes[start : start + max_items]) for start in range(0, len(indexes), max_items))


def plan_store(held: Sequence[bool], arriving: Sequence[bool], room: int, max_items: int) -> StorePlan:
    """Choose what to copy into a tier.

    Args:
        held: per block, whether the tier holds it.
        arriving: per block, whether a job that writes it into the tier is under way.
        room: blocks that can be granted now.
        max_items: blocks per job.
    """
    wanted = [index for index, (here, coming) in enumerate(zip(held, arriving, strict=True)) if not (here or coming)]
    taken = wanted[: max(room, 0)]
    return StorePlan(batches(taken, max_items), tuple(wanted[len(taken) :]))
