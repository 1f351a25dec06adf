"""Which blocks of G2 go down to G3, and when.

Four questions, asked in this order::

    select    when blocks land in G2 (write-through), or are the next to leave it (write-back): which are wanted in G3?
    hopeless  before G3 makes room: which waiting blocks would be its next victims themselves?
    confirm   when it is their turn: which may be written now?
    due_again when bytes may be written again: which that were refused for want of them are asked about anew?

Rules: a block comes only after its parent, which is in G3, on its way there, or named with it, since a prefix with a
hole serves nobody: ancestors that are still in G2 are selected along. A parent that only an engine has, in its own
memory, will do: what it uses all the time is loaded by nobody, and would keep all that follows it out of G3 for good
once G3 has lost it. Of a window group only the last blocks of a
prefix are needed, and those that its window had passed were never stored: its blocks wait for nobody. A block is worth
no more than its parent, so where the parent is among the next victims the child is not written. A block that was not
wanted often enough lately stays where it is, and nothing is written beyond the bytes of the day: what is refused for
that is asked about again when there are bytes, the blocks that wait longest first. The copy in G3 is kept when a block
goes up again.
Invariants: what is selected or confirmed with ``needs_parents`` is closed under prefixes, given what the view has; no
name is both admitted and refused; confirmed bytes never exceed the budget; at most ``POSTPONED_BLOCKS`` wait for it.
Threading: owned by one thread. Pure but for its counts of uses, its budget and what waits for that.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Final, Protocol, final

from blockyard.core.block_name import BlockName
from blockyard.core.clock import Clock
from blockyard.core.endurance import EnduranceBudget
from blockyard.core.postponed_blocks import BlockKey, PostponedBlocks
from blockyard.core.use_counts import UseCounts
from blockyard.core.vocabulary import ROOT_KEY, ContentKey, GroupId

POSTPONED_BLOCKS: Final = 16_384
"""Blocks that may wait for the budget; beyond that the oldest are not asked about again."""


@unique
class WritePolicy(StrEnum):
    """When a block of G2 is written to G3."""

    WRITE_THROUGH = "write_through"
    """As soon as it is in G2."""
    WRITE_BACK = "write_back"
    """When it is among the next that G2 will give up."""


@unique
class OffloadRefusal(StrEnum):
    """Why a block is not written."""

    PARENT_ABSENT = "parent_absent"
    """The block before it is neither in G3 nor to be had from G2, and no engine has it."""
    TOO_FEW_USES = "too_few_uses"
    NEXT_VICTIM = "next_victim"
    """The block before it is about to leave G3."""
    WRITE_BUDGET = "write_budget"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadRules:
    """Settings of the plan."""

    policy: WritePolicy = WritePolicy.WRITE_THROUGH
    least_uses: int = 1
    """Lately counted uses that a block needs; 1 = every block is written."""
    bytes_per_day: int = 0
    """Most that is written within any 24 hours; 0 = no limit."""


class TierView(Protocol):
    """What the plan asks about blocks of one group."""

    def in_g2(self, key: ContentKey) -> BlockName | None:
        """Full name of a block that G2 holds."""
        ...

    def in_g3(self, key: ContentKey) -> bool:
        """Whether G3 holds a block, or a copy into it has begun."""
        ...

    def queued(self, key: ContentKey) -> bool:
        """Whether a block waits for its copy into G3."""
        ...

    def in_g1(self, key: ContentKey) -> bool:
        """Whether an engine has a block in its memory."""
        ...


@final
@dataclass(slots=True)
class OffloadDecision:
    """Answer of the plan: each name at most once; what is there already is not named."""

    admitted: list[BlockName] = field(default_factory=list)
    """Parents before their children."""
    refused: dict[BlockName, OffloadRefusal] = field(default_factory=dict)


@final
class OffloadPlan:
    """The rules of one node."""

    def __init__(self, rules: OffloadRules, block_bytes: int, clock: Clock) -> None:
        """Count uses and bytes only where a rule needs them.

        Raises:
            KernelError: the budget is smaller than one block.
        """
        self.rules: Final = rules
        self._block_bytes = block_bytes
        self._uses = UseCounts(clock) if rules.least_uses > 1 else None
        self._budget = EnduranceBudget(rules.bytes_per_day, block_bytes, clock) if rules.bytes_per_day else None
        self._postponed: Final = PostponedBlocks(POSTPONED_BLOCKS)

    def used(self, names: Iterable[BlockName], group: GroupId) -> None:
        """Blocks were wanted: computed, or loaded."""
        if self._uses is not None:
            self._uses.saw((name.key, group) for name in names)

    def select(
        self, names: Sequence[BlockName], group: GroupId, view: TierView, *, needs_parents: bool = True
    ) -> OffloadDecision:
        """Which of these blocks of G2 are wanted in G3, with the ancestors they need there."""
        decision = OffloadDecision()
        settled: dict[ContentKey, OffloadRefusal | None] = {}
        for name in names:
            if name.key not in settled and not self._there(name.key, view):
                missing, refusal = self._missing(name, view, settled) if needs_parents else ([name], None)
                self._settle(missing, refusal, group, settled, decision)
        return decision

    def hopeless(
        self, victims: Iterable[ContentKey], behind: Callable[[ContentKey], Iterable[BlockName]]
    ) -> list[BlockName]:
        """Which waiting blocks of one group to refuse as NEXT_VICTIM, where these are the next to leave G3.

        Args:
            victims: blocks that leave.
            behind: waiting blocks whose parent a block is; asked for victims and for what is refused, and no more.
        """
        gone = list(victims)
        refused: dict[ContentKey, BlockName] = {}
        for key in gone:  # grows while it is walked through: what is refused takes along what waits behind it
            for name in behind(key):
                if name.key not in refused:
                    refused[name.key] = name
                    gone.append(name.key)
        return list(refused.values())

    def confirm(
        self,
        names: Sequence[BlockName],
        group: GroupId,
        had: Callable[[ContentKey], bool],
        *,
        needs_parents: bool = True,
    ) -> OffloadDecision:
        """Which of these blocks, parents first, are written now; their bytes are spent.

        Args:
            names: blocks whose turn it is.
            group: of all of them.
            had: whether a parent that is not among them is in G3 or in the memory of an engine.
            needs_parents: false for a group with a window.
        """
        decision = OffloadDecision()
        room = len(names) if self._budget is None else self._budget.affordable(self._block_bytes)
        admitted: set[ContentKey] = set()
        why: dict[ContentKey, OffloadRefusal] = {}
        for name in names:
            refusal = why.get(name.parent)
            alone = name.parent != ROOT_KEY and name.parent not in admitted
            if refusal is None and needs_parents and alone and not had(name.parent):
                refusal = OffloadRefusal.PARENT_ABSENT
            if refusal is None and len(admitted) >= room:
                refusal = OffloadRefusal.WRITE_BUDGET
            if refusal is None:
                admitted.add(name.key)
                decision.admitted.append(name)
            else:
                why[name.key] = decision.refused[name] = refusal
        if self._budget is not None:
            self._budget.spend(len(admitted) * self._block_bytes)
            short = [name for name, refusal in decision.refused.items() if refusal is OffloadRefusal.WRITE_BUDGET]
            self._postponed.postpone((name.key, group) for name in short)
            self._postponed.forget((name.key, group) for name in decision.admitted)
        return decision

    def due_again(self, batch: int) -> list[BlockKey]:
        """Blocks that were refused for want of budget and can be paid for now: ask about them anew, if they are there.

        Args:
            batch: most blocks; fewer than that are not worth a job while more wait.
        """
        if self._budget is None or not len(self._postponed):
            return []
        at_once = min(batch, self._budget.burst_bytes // self._block_bytes)
        return self._postponed.due(self._budget.affordable(self._block_bytes), at_once)

    def left(self, blocks: Iterable[BlockKey]) -> None:
        """Blocks left G2: there is nothing to write any more."""
        self._postponed.forget(blocks)

    def not_written(self, blocks: int) -> None:
        """So many confirmed blocks are known not to have been written: the worker never began with them."""
        if self._budget is not None:
            self._budget.refund(blocks * self._block_bytes)

    # --- inside -------------------------------------------------------------------------------------------------------
    def _there(self, key: ContentKey, view: TierView) -> bool:
        return view.in_g3(key) or view.queued(key)

    def _missing(
        self, name: BlockName, view: TierView, settled: dict[ContentKey, OffloadRefusal | None]
    ) -> tuple[list[BlockName], OffloadRefusal | None]:
        """A block and those before it that are not settled, deepest first, and why none of them can come."""
        missing = [name]
        while (parent := missing[-1].parent) != ROOT_KEY and not self._there(parent, view):
            if parent in settled:
                return missing, settled[parent]
            ancestor = view.in_g2(parent)
            if ancestor is None:
                return missing, None if view.in_g1(parent) else OffloadRefusal.PARENT_ABSENT
            missing.append(ancestor)
        return missing, None

    def _settle(
        self,
        missing: Sequence[BlockName],
        refusal: OffloadRefusal | None,
        group: GroupId,
        settled: dict[ContentKey, OffloadRefusal | None],
        decision: OffloadDecision,
    ) -> None:
        """Settle blocks of one chain from the first missing one all the way down."""
        for each in reversed(missing):
            if refusal is None and not self._used_enough(each, group):
                refusal = OffloadRefusal.TOO_FEW_USES
            settled[each.key] = refusal
            if refusal is None:
                decision.admitted.append(each)
            else:
                decision.refused[each] = refusal

    def _used_enough(self, name: BlockName, group: GroupId) -> bool:
        return self._uses is None or self._uses.count((name.key, group)) >= self.rules.least_uses
