"""What really happened to the slots of a node, seen from outside of all processes.

It hears of every grant, every landing of bytes, every answer to an attach and every clear, and raises where a rule is
broken: a write lands under the current grant of its slot or not at all; no command of a superseded life of the
block-manager has an effect; what was planned before a clear does not appear after it.
Threading: one thread.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from blockyard.core.jobs import JobId
from blockyard.core.vocabulary import Tier, WorkerRole


class BrokenRuleError(AssertionError):
    """An invariant of the protocols does not hold; the message begins with its name."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One grant of one slot; ``number`` counts the grants of a node over all lives."""

    number: int
    epoch: int
    generation: int


Place = tuple[Tier, int]


class WriteOracle:
    """Grants, landings, attaches and clears of one node."""

    def __init__(self) -> None:
        """Start with nothing granted."""
        self.landed: int = 0
        self._grants: dict[Place, Grant] = {}
        self._written: dict[Place, Grant] = {}
        """Grant under which the bytes in a slot landed."""
        self._last = 0
        self._served: dict[WorkerRole, tuple[int, frozenset[JobId]]] = {}
        self._started: set[tuple[WorkerRole, int, JobId]] = set()
        self._cuts: Final[dict[Tier, int]] = {}
        """Last grant before the latest clear that has ended."""

    # --- grants and writes --------------------------------------------------------------------------------------------
    def granted(self, tier: Tier, slots: Iterable[tuple[int, int]], epoch: int) -> None:
        """A life of the block-manager granted slots with these generations."""
        for slot, generation in slots:
            self._last += 1
            before = self._grants.get((tier, slot))
            if before is not None and (before.epoch, before.generation) >= (epoch, generation):
                raise BrokenRuleError(f"R34: slot {slot} of {tier.label} is granted again with generation {generation}")
            self._grants[tier, slot] = Grant(self._last, epoch, generation)

    def lands(self, tier: Tier, slot: int, epoch: int, generation: int) -> None:
        """Bytes are about to land in a slot that belongs to the node, for this life of the block-manager."""
        grant = self._grants.get((tier, slot))
        if grant is None or (grant.epoch, grant.generation) != (epoch, generation):
            raise BrokenRuleError(
                f"I2: generation {generation} of epoch {epoch} lands in slot {slot} of {tier.label} under {grant}"
            )
        self._written[tier, slot] = grant
        self.landed += 1

    def forget(self, tier: Tier) -> None:
        """The slots of a tier are other ones from now on."""
        for known in (self._grants, self._written):
            for place in [place for place in known if place[0] is tier]:
                del known[place]

    def lands_for(self, role: WorkerRole, job: JobId) -> None:
        """A worker is about to let bytes of this job land, wherever."""
        epoch, named = self._served.get(role, (0, frozenset()))
        if job.epoch < epoch and job not in named:
            raise BrokenRuleError(f"I10: {job} has an effect after epoch {epoch} was answered")

    # --- workers ------------------------------------------------------------------------------------------------------
    def answered(self, role: WorkerRole, epoch: int, running: Collection[JobId]) -> None:
        """A worker serves this life of the block-manager from now on; these older jobs still run."""
        self._served[role] = (epoch, frozenset(running))

    def started(self, role: WorkerRole, life: int, job: JobId) -> None:
        """A worker begins a job."""
        if (role, life, job) in self._started:
            raise BrokenRuleError(f"I8: {job} starts twice")
        self._started.add((role, life, job))
        epoch, _ = self._served.get(role, (0, frozenset()))
        if job.epoch < epoch:
            raise BrokenRuleError(f"I10: {job} starts after epoch {epoch} was answered")

    # --- clears -------------------------------------------------------------------------------------------------------
    @property
    def last_grant(self) -> int:
        """Number of the latest grant."""
        return self._last

    def cleared(self, tier: Tier, last_grant: int) -> None:
        """A clear has ended: in no life may appear what was planned up to this grant."""
        self._cuts[tier] = max(self._cuts.get(tier, 0), last_grant)

    def appears(self, tier: Tier, slot: int, generation: int, last_grant: int) -> None:
        """A block is announced, in this slot under this grant, by a life that cleared the tier at ``last_grant``."""
        written = self._written.get((tier, slot))
        if written is None or written.generation != generation:
            raise BrokenRuleError(f"I6: slot {slot} of {tier.label} is announced and holds {written}")
        if written.number <= max(last_grant, self._cuts.get(tier, 0)):
            raise BrokenRuleError(f"I18: slot {slot} of {tier.label}, generation {generation}, outlives a clear")
