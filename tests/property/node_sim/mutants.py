"""Nodes that break one rule each, so that the simulation can show that it sees it.

Each is as near to the product as its mistake allows: a worker or a life of the decisions with one method replaced.
Threading: one thread.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.property.node_sim.manager import OW
from tests.property.node_sim.node import WRITES_BACK, Mutant

from blockyard.core.jobs import Refusal
from blockyard.core.pool import CutReport
from blockyard.core.vocabulary import Epoch, Generation, ItemStatus, JobSeq, Tier
from blockyard.testing.fake_slots import FakeSlot
from blockyard.testing.fake_worker import FakeWorker
from blockyard.wire import worker_channel as channel
from blockyard_block_manager.node_core import NodeCore
from blockyard_block_manager.slot_freer import FreeTicket


class CopiesOtherBytes(FakeWorker):
    """Certifies bytes that are not those of the block."""

    def _land(self, slot: FakeSlot, job: channel.Job, item: int, granted: Generation, payload: bytes) -> ItemStatus:
        return super()._land(slot, job, item, granted, payload[:-1] + b"?")


class ForgetsToWrite(FakeWorker):
    """Says that a block is stored and writes nothing, in every third slot of G2."""

    def _land(self, slot: FakeSlot, job: channel.Job, item: int, granted: Generation, payload: bytes) -> ItemStatus:
        if any(slot is forgotten for forgotten in self.tiers[Tier.G2].slots[::3]):
            return ItemStatus.OK
        return super()._land(slot, job, item, granted, payload)


class ForgetsNumbers(FakeWorker):
    """Knows nothing of a job once its result was acknowledged, so that a late copy of the command runs."""

    def submit(self, request: channel.Submit) -> channel.Reply:
        self._ledger._closed.clear()
        self._ledger._settled_below = 1
        return super().submit(request)


class KeepsQueueOfOlderLives(FakeWorker):
    """Goes on with what an earlier life of the block-manager had queued."""

    def attach(self, request: channel.Attach) -> channel.Attached:
        ledger = self._ledger
        queued = {job: entry for job, entry in ledger._entries.items() if entry.outcome is None}
        answer = super().attach(request)
        for job, entry in queued.items():
            if job not in ledger._entries:
                ledger._entries[job] = entry
                ledger._queue.put(job, job, lane=None, priority=-entry.ticket.lane)
        return answer


def deadline_settles(core: NodeCore) -> None:
    """A job is over when its time is."""
    due = core.desk.due

    def ending() -> object:
        table = core.desk.table
        for seq in [*table.unsettled(OW)]:
            facts = table.facts(seq)
            if facts is not None and facts.deadline <= core.desk._clock.monotonic():
                core.job_refused(seq, Refusal.SETTLED)
        return due()

    _replace(core.desk, "due", ending)


def lost_connection_settles(core: NodeCore) -> None:
    """What a worker had when its connection ended is over."""
    gone = core.desk.worker_disconnected

    def ending(role: object) -> None:
        gone(OW)
        for seq in core.desk.table.unsettled(OW):
            core.desk.refused(seq, Refusal.SETTLED)

    _replace(core.desk, "worker_disconnected", ending)


def result_settles_twice(core: NodeCore) -> None:
    """A repeated result is taken like the first."""
    table, kept = core.desk.table, dict[JobSeq, object]()
    settle = table.settle

    def again(seq: JobSeq, worker_epoch: Epoch) -> bool:
        opened = core.desk._open.get(seq) or kept.get(seq)
        kept[seq] = opened
        if not settle(seq, worker_epoch) and opened is not None:
            core.desk._open[seq] = opened  # type: ignore[assignment]
        return opened is not None

    _replace(table, "settle", again)


def leases_never_expire(core: NodeCore) -> None:
    """Leases end by release only."""
    _replace(core.leases, "expire", lambda: None)


def slots_never_come_back(core: NodeCore) -> None:
    """Slots that left the table are not freed."""
    _replace(core._freer, "pump", lambda: None)


def grants_before_remote_tier(core: NodeCore) -> None:
    """Slots are granted as soon as the offload-worker is listed."""
    gates = core.recovery._set_gates

    def opening() -> None:
        gates()
        core.tables.grants_open = core.tables.serving

    _replace(core.recovery, "_set_gates", opening)


def removals_are_silent(core: NodeCore) -> None:
    """Blocks that leave are not announced."""
    _replace(core.events, "removed", lambda owner, tier, gone: None)


def clear_ends_at_once(core: NodeCore) -> None:
    """A clear is reported as done before the headers of what it removed are free."""

    def closed(tier: Tier) -> FreeTicket:
        return FreeTicket(tier, freed_slots=1_000)

    _replace(core._freer, "open_ticket", closed)
    _replace(core._freer, "close_ticket", lambda ticket: None)


def clear_forgets_who_is_held(core: NodeCore) -> None:
    """A clear does not report the blocks that somebody holds."""
    cut: Callable[..., CutReport] = core.tables.cut

    def forgetting(*scope: object) -> CutReport:
        return replace(cut(*scope), pinned=0)

    _replace(core.tables, "cut", forgetting)


def evictions_are_silent(core: NodeCore) -> None:
    """Stores wait for no disk, and what leaves G2 for them before it was written is not counted."""
    _replace(core._disk, "g2_room", lambda limit: min(core.tables.room(Tier.G2), limit))
    core.tables.on_evicted = lambda tier, blocks: None


def _replace(owner: object, name: str, method: Callable[..., object]) -> None:
    setattr(owner, name, method)


NODE_MUTANTS: Final[dict[str, tuple[tuple[str, ...], int, Mutant]]] = {
    "copies other bytes": (("I1",), 60, Mutant(CopiesOtherBytes)),
    "deadline settles": (("I2", "I6"), 60, Mutant(spoil=deadline_settles)),
    "lost connection settles": (("I2", "I6"), 60, Mutant(spoil=lost_connection_settles)),
    "forgets to write": (("I6",), 60, Mutant(ForgetsToWrite)),
    "slots never come back": (("I7",), 60, Mutant(spoil=slots_never_come_back)),
    "forgets numbers": (("I8",), 200, Mutant(ForgetsNumbers)),
    "result settles twice": (("I8",), 60, Mutant(spoil=result_settles_twice)),
    "leases never expire": (("I9",), 120, Mutant(spoil=leases_never_expire)),
    "keeps queue of older lives": (("I10",), 60, Mutant(KeepsQueueOfOlderLives)),
    "grants before remote tier": (("I11",), 60, Mutant(spoil=grants_before_remote_tier)),
    "removals are silent": (("I12",), 60, Mutant(spoil=removals_are_silent)),
    "clear forgets who is held": (("I18",), 60, Mutant(spoil=clear_forgets_who_is_held)),
    "clear ends at once": (("I18",), 120, Mutant(spoil=clear_ends_at_once)),
    "evictions are silent": (("P",), 60, replace(WRITES_BACK, spoil=evictions_are_silent)),
}
"""What each breaks, within how many seeds that is seen, and how."""
