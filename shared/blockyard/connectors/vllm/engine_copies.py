"""Copies of one rank as the steps of its engine order them (executor ``engine``), and what its link to the node needs.

::

    step_begins   compute waits for stores that still read blocks which this step rewrites
    loads_begin   loads, behind all compute submitted by then
    step_ended    stores of what the step has written, behind its event
    report        orders that have ended, and which attachment to the node this is

Every attach to the node tells it that this rank is done with every slot it knew of. So each attachment has a number,
orders carry the one for which the node gave their slots, and orders of any other attachment are refused.
Invariants: every order is reported exactly once, when no copy of it is under way or will follow; a fault ends all
copies, and the rank copies no more; nothing here raises into the engine.
Threading: steps are those of the engine's worker thread, the link's calls come from its own; a lock is between them. A
rank waits for copies where a fence says so on a device that has no other way, and when the arena is taken from it.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from typing import Final, Generic, final

from blockyard.connectors.rank_copies import CopyId, EndedCopy, RankCopies, RankLayout
from blockyard.connectors.vllm.step_plan import CopyOrder, CopyPlan, StepReport
from blockyard.core.vocabulary import ItemStatus
from blockyard.tiers.arena import Arena
from blockyard.tiers.device.base import Device, PagesT
from blockyard.tiers.device.events import EventPool
from blockyard.tiers.device.fences import Fences

_DRAIN_POLL_SECONDS: Final = 0.002
_log: Final = logging.getLogger(__name__)


@final
class EngineCopies(Generic[PagesT]):
    """The orders of one rank."""

    def __init__(
        self, layout: RankLayout[PagesT], device: Callable[[], Device[PagesT]], fences: Fences | None = None
    ) -> None:
        """Begin without an arena.

        Args:
            layout: pages of this rank.
            device: makes the device of the pages; called in the worker thread, anew for every arena.
            fences: all of them, unless a test leaves some out.
        """
        self._layout = layout
        self._new_device = device
        self._fences: Final = fences or Fences()
        self._lock = threading.Lock()
        self._arena: Arena | None = None
        self._copies: RankCopies[PagesT] | None = None
        self._device = ExitStack()
        self._orders: dict[CopyId, int] = {}
        self._ended: list[tuple[int, tuple[ItemStatus, ...]]] = []
        self._attachment = 0
        self._is_attached = False
        self._told = 0
        self._stopped = False

    # --- the link's thread --------------------------------------------------------------------------------------------
    def take_arena(self, arena: Arena | None) -> None:
        """Copy to and from this arena from now on; None: the old one is about to be unmapped, its copies end."""
        with self._lock:
            self._end_copies()
            self._arena = arena

    async def drained(self) -> None:
        """Refuse all orders of before, and return when no copy of theirs is under way."""
        with self._lock:
            self._attachment += 1
            self._is_attached = False
        # No event loop can wait for an event of a device.
        while not self._all_ended():  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_POLL_SECONDS)

    def attached(self, attached: bool) -> None:  # noqa: FBT001 - the link tells one fact
        """The node has this rank now; without it, copies go on until the next attach."""
        with self._lock:
            self._is_attached |= attached

    # --- the worker thread --------------------------------------------------------------------------------------------
    def step_begins(self, plan: CopyPlan) -> None:
        """Before anything of this step is submitted to the device."""
        blocks = self._fences.reused(plan.ours, plan.others)
        with self._lock:
            if plan.stop:
                self._stop()
            # A fault of ours ends all copies; the engine goes on, whatever it was.
            try:
                copies = self._made_copies()
                if copies is not None:
                    copies.before_rewrite(blocks)
            except Exception:  # noqa: BLE001
                _log.exception("this rank copies no more; its rows are neither stored nor loaded")
                self._stop()

    def loads_begin(self, plan: CopyPlan) -> None:
        """Submit this step's loads."""
        for order in plan.loads:
            self._carry_out(plan, order, _load)

    def step_ended(self, plan: CopyPlan) -> None:
        """All kernels of the step are submitted: submit its stores behind them."""
        for order in plan.stores:
            self._carry_out(plan, order, _store)

    def report(self, report: StepReport) -> None:
        """Add what the scheduler half has not heard yet."""
        with self._lock:
            self._poll()
            for order, statuses in self._ended:
                report.copied(self._layout.rank, order, statuses)
            self._ended.clear()
            if self._is_attached and self._copies is not None and self._told != self._attachment:
                self._told = self._attachment
                report.attachments[self._layout.rank] = self._attachment

    def close(self) -> None:
        """Wait for all copies; no more follow."""
        with self._lock:
            self._stop()

    # --- inside, under the lock ---------------------------------------------------------------------------------------
    def _made_copies(self) -> RankCopies[PagesT] | None:
        if self._copies is None and self._arena is not None and not self._stopped:
            device = self._device.enter_context(closing(self._new_device()))
            events = EventPool(device.new_event, self._fences)
            self._copies = RankCopies(device, self._fences, events, self._layout, self._arena)
        return self._copies

    def _carry_out(
        self, plan: CopyPlan, order: CopyOrder, submit: Callable[[RankCopies[PagesT], CopyOrder], CopyId]
    ) -> None:
        rank = self._layout.rank
        with self._lock:
            is_ours = rank < len(plan.attachments) and plan.attachments[rank] == self._attachment
            if self._copies is None or not is_ours:
                self._ended.append((order.number, (ItemStatus.SKIPPED,) * len(order.rows)))
                return
            # As above; what was submitted of this order has ended when all copies have.
            try:
                self._orders[submit(self._copies, order)] = order.number
            except Exception:  # noqa: BLE001
                _log.exception("this rank copies no more; its rows are neither stored nor loaded")
                self._stop()
                self._ended.append((order.number, (ItemStatus.UNKNOWN,) * len(order.rows)))

    def _all_ended(self) -> bool:
        """Whether nothing is under way; the only one here that takes the lock."""
        with self._lock:
            return self._poll()

    def _poll(self) -> bool:
        """Note what has ended; whether nothing is under way."""
        if self._copies is not None:
            self._note(self._copies.poll())
        return not self._orders

    def _note(self, ended: Iterable[EndedCopy]) -> None:
        self._ended += [(self._orders.pop(end.copy), end.statuses) for end in ended]

    def _stop(self) -> None:
        self._stopped = True
        self._end_copies()

    def _end_copies(self) -> None:
        copies, self._copies = self._copies, None
        if copies is not None:
            self._note(copies.close())
            self._device.close()


def _load(copies: RankCopies[PagesT], order: CopyOrder) -> CopyId:
    return copies.submit_load(order.rows)


def _store(copies: RankCopies[PagesT], order: CopyOrder) -> CopyId:
    step = copies.step_ended()
    try:
        return copies.submit_store(step, order.rows)
    finally:
        step.release()
