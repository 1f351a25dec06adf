"""Everything that the scheduler half has to do with ranks that copy by themselves (executor ``engine``).

It knows the attachments of the ranks, gathers what a step's plan says about copies, and puts the reports of the ranks
together: an order has ended when it has in every rank.
Invariants: numbers of orders are never used again; an order that a rank refused has failed, whatever others did.
Threading: the scheduler's thread.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, final

from blockyard.connectors.engine_guards import Numbers
from blockyard.connectors.vllm.node_calls import LoadEnded
from blockyard.connectors.vllm.rows import FILLER, Rows
from blockyard.connectors.vllm.slot_orders import LoadStaged, SlotNews
from blockyard.connectors.vllm.slot_stores import SlotStores
from blockyard.connectors.vllm.staged_copies import StagedCopies
from blockyard.connectors.vllm.step_plan import CopyPlan, StepReport
from blockyard.core.vocabulary import EngineBlockId, ItemStatus
from blockyard.tiers.device.fences import Fences
from blockyard.tiers.device.rank_ends import RankEnds


@final
class SlotDesk:
    """Copies of all ranks of one engine."""

    def __init__(
        self, ranks: int, stores: SlotStores, loads: StagedCopies, on_ended: Callable[[LoadEnded], None]
    ) -> None:
        """Have ends of loads told to ``on_ended``."""
        self.stores: Final = stores
        self.loads: Final = loads
        self._ranks = ranks
        self._on_ended = on_ended
        self._known: dict[int, int] = {}
        self._numbers = count(1)
        self._ends: RankEnds[int] = RankEnds(ranks, Fences())
        self._statuses: dict[int, tuple[ItemStatus, ...]] = {}
        self._ours: list[Numbers] = []
        self._others: list[Numbers] = []
        self._stops = False

    @property
    def busy(self) -> bool:
        """Whether ranks have orders whose end they have not reported."""
        return self.stores.busy

    def load(self, load: int, request: str, rows: Sequence[Rows], ttl_seconds: float) -> None:
        """Bring rows into their pages; ``LoadEnded`` follows."""
        self.loads.begin(load, request, rows, ttl_seconds)

    def drop_load(self, load: int) -> bool:
        """Nobody waits for this load; False where ranks copy for it, so that somebody has to."""
        if self.loads.is_copied(load):
            return False
        self.loads.forget(load)
        return True

    def reused(self, blocks: Numbers, *, by_others: bool) -> None:
        """Engine blocks were allocated anew, perhaps for the loads of another connector."""
        (self._others if by_others else self._ours).append(blocks)

    def connected(self, *, connected: bool) -> None:
        """The connection to the node began or ended: what was granted over the last one is void."""
        if not connected:
            self._known_changed(())
        elif len(self._known) == self._ranks:
            self._known_changed(self._vector())

    def heard(self, news: SlotNews) -> None:
        """The node has answered."""
        if not isinstance(news, LoadStaged):
            self.stores.granted(news)
        elif (ended := self.loads.staged(news)) is not None:
            self._on_ended(ended)

    def plan(self, *, idle: bool = False) -> CopyPlan:
        """What the ranks copy in the step that is being planned; ``idle`` if the engine has no requests."""
        loads, lost = self.loads.take_orders(lambda: next(self._numbers))
        for ended in lost:
            self._on_ended(ended)
        store = self.stores.order(next(self._numbers), idle=idle)
        plan = CopyPlan(
            attachments=self._vector(),
            ours=_blocks(self._ours),
            others=_blocks(self._others),
            stores=() if store is None else (store,),
            loads=loads,
            stop=self._stops,
        )
        self._ours.clear()
        self._others.clear()
        return plan

    def reported(self, report: StepReport) -> None:
        """Ranks have said what they did."""
        for number, ranks in sorted(report.copies.items()):
            for rank, statuses in ranks.items():
                self._rank_ended(number, rank, statuses)
        if report.attachments:
            self._known |= report.attachments
            if len(self._known) == self._ranks:
                self._known_changed(self._vector())

    def give_up(self) -> CopyPlan:
        """Nothing is copied any more; the plan by which the ranks hear of it before their next step."""
        self._stops = True
        self.stores.forget()
        return CopyPlan(stop=True)

    # --- inside -------------------------------------------------------------------------------------------------------
    def _rank_ended(self, number: int, rank: int, statuses: tuple[ItemStatus, ...]) -> None:
        before = self._statuses.get(number, statuses)
        merged = tuple(new if old is ItemStatus.OK else old for old, new in zip(before, statuses, strict=True))
        self._statuses[number] = merged
        if not self._ends.ended(rank, number):
            return
        del self._statuses[number]
        if not self.stores.ended(number, merged) and (ended := self.loads.ended(number, merged)) is not None:
            self._on_ended(ended)

    def _vector(self) -> tuple[int, ...]:
        return tuple(self._known.get(rank, 0) for rank in range(self._ranks))

    def _known_changed(self, attachments: tuple[int, ...]) -> None:
        self.stores.attached(attachments)
        self.loads.attached(attachments)


def _blocks(parts: Sequence[Numbers]) -> tuple[EngineBlockId, ...]:
    return tuple(EngineBlockId(block) for part in parts for block in part.tolist() if block != FILLER)
