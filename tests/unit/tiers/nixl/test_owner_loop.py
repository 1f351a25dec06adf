"""The owner thread's loop on an agent that does what the test says."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import pytest

from blockyard.core.errors import TransferError
from blockyard.testing.slab_files import FileCall, MemorySlabFile
from blockyard.tiers.arena import PAGE_BYTES, Arena
from blockyard.tiers.base import MoveOutcome, SlabRegion, SlotArray
from blockyard.tiers.block_moves import Direction
from blockyard.tiers.nixl.owner_loop import Move, OwnerLoop
from blockyard.tiers.nixl.posix_agent import PosixTransfer
from blockyard.tiers.nixl.transfer_state import TransferState

SLOTS = 600
DONE, IO_ERROR = MoveOutcome.DONE, MoveOutcome.IO_ERROR


@dataclass
class ScriptedAgent:
    """Answers each request with the next state of its script, one per poll."""

    scripts: list[list[TransferState]] = field(default_factory=list)
    refuse: bool = False
    live: int = 0
    most_live: int = 0
    posted: list[int] = field(default_factory=list)
    released: int = 0

    def post(
        self, direction: Direction, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray
    ) -> PosixTransfer:
        if self.refuse:
            raise TransferError("refused for the test")
        self.posted.append(len(arena_slots))
        self.live += 1
        self.most_live = max(self.most_live, self.live)
        return PosixTransfer(self.scripts.pop(0) if self.scripts else [TransferState.DONE], refused=False)

    def poll(self, transfer: PosixTransfer) -> TransferState:
        state: TransferState = transfer.handle.pop(0)
        return state

    def finish(self, transfer: PosixTransfer) -> None:
        assert transfer.handle == []
        self.live -= 1
        self.released += 1


@dataclass
class Bench:
    """A loop with everything around it; ``run`` serves what was put in, then ends."""

    agent: ScriptedAgent
    file: MemorySlabFile
    inbox: "queue.SimpleQueue[Move | None]"
    loop: OwnerLoop

    def put(self, count: int, first: int = 0) -> "Future[list[MoveOutcome]]":
        slots = np.arange(first, first + count, dtype=np.int32)
        done: Future[list[MoveOutcome]] = Future()
        region = SlabRegion(self.file, 0, PAGE_BYTES, SLOTS)
        self.inbox.put(Move(Direction.WRITE, region, slots, slots, [IO_ERROR] * count, count, done))
        return done

    def run(self) -> None:
        self.inbox.put(None)
        self.loop.run()


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Arena.create(SLOTS, PAGE_BYTES) as arena:
        agent = ScriptedAgent()
        inbox: queue.SimpleQueue[Move | None] = queue.SimpleQueue()
        yield Bench(agent, MemorySlabFile(SLOTS * PAGE_BYTES), inbox, OwnerLoop(agent, arena, inbox))


def test_a_large_move_is_cut_and_few_requests_are_live(bench: Bench) -> None:
    bench.agent.scripts = [[TransferState.RUNNING] * 2 + [TransferState.DONE] for _ in range(5)]
    done = bench.put(SLOTS)
    bench.run()
    assert done.result(timeout=0) == [DONE] * SLOTS
    assert bench.agent.posted == [128, 128, 128, 128, 88]
    assert bench.agent.most_live == 4
    assert bench.agent.released == 5


def test_moves_end_in_the_order_their_requests_end(bench: Bench) -> None:
    bench.agent.scripts = [[TransferState.RUNNING] * 20 + [TransferState.DONE], [TransferState.DONE]]
    ended: list[str] = []
    bench.put(1).add_done_callback(lambda _: ended.append("slow"))
    bench.put(1, first=5).add_done_callback(lambda _: ended.append("quick"))
    bench.run()
    assert ended == ["quick", "slow"]


def test_a_failed_request_is_repeated_block_by_block(bench: Bench) -> None:
    bench.agent.scripts = [[TransferState.RUNNING, TransferState.FAILED]]
    bench.file.fail(FileCall.WRITE, TransferError("bad place"), 2 * PAGE_BYTES, 3 * PAGE_BYTES)
    done = bench.put(4)
    bench.run()
    assert done.result(timeout=0) == [DONE, DONE, IO_ERROR, DONE]
    assert bench.loop.retried_blocks == 4
    assert bench.agent.released == 1


def test_a_request_that_cannot_be_posted_is_carried_out_block_by_block(bench: Bench) -> None:
    bench.agent.refuse = True
    done = bench.put(3)
    bench.run()
    assert done.result(timeout=0) == [DONE] * 3
    assert len(bench.file.writes) == 3


def test_a_failed_part_leaves_the_other_parts_alone(bench: Bench) -> None:
    bench.agent.scripts = [[TransferState.DONE], [TransferState.FAILED]]
    bench.file.fail(FileCall.WRITE, TransferError("broken"))
    done = bench.put(130)
    bench.run()
    assert done.result(timeout=0) == [DONE] * 128 + [IO_ERROR] * 2


def test_the_loop_waits_for_work_and_ends_when_told(bench: Bench) -> None:
    thread = threading.Thread(target=bench.loop.run)
    thread.start()
    assert bench.put(2).result(timeout=10) == [DONE] * 2
    assert bench.put(3).result(timeout=10) == [DONE] * 3
    bench.inbox.put(None)
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_after_a_crash_only_moves_that_never_began_are_refused(bench: Bench) -> None:
    bench.agent.scripts = [[]]
    begun, waiting = bench.put(1), bench.put(1, first=5)
    bench.agent.scripts = [[], []]
    with pytest.raises(IndexError):
        bench.run()
    late = bench.put(1, first=9)
    bench.loop.refuse_waiting(TransferError("crashed"))
    assert not begun.done()
    assert not waiting.done()
    assert isinstance(late.exception(timeout=0), TransferError)
