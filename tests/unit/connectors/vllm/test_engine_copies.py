"""Copies of one rank: which orders it carries out, when it says that they have ended, and what its link awaits."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from random import Random

import numpy as np
import pytest

from blockyard.connectors.rank_copies import RankLayout, RowCopy
from blockyard.connectors.vllm.engine_copies import EngineCopies
from blockyard.connectors.vllm.step_plan import CopyOrder, CopyPlan, StepReport
from blockyard.core.kv_groups import KvGroup, Region
from blockyard.core.vocabulary import BlockId, EngineBlockId, Generation, ItemStatus
from blockyard.testing.byte_patterns import header_of
from blockyard.testing.sim_device import SimDevice
from blockyard.tiers.arena import Arena
from blockyard.tiers.device.base import PageCopy, SourceOrder, Stream
from blockyard.tiers.device.host import HostDevice, HostPages, host_pages

BLOCKS, PAGE = 8, 64
SLOT = BlockId(1)
GENERATION = Generation(7)


@pytest.fixture
def arena() -> Iterator[Arena]:
    with Arena.create(4, 2 * PAGE) as made:
        yield made


class Rank:
    """The only rank of an engine; rows have two pages."""

    def __init__(self, arena: Arena, device: Callable[[], object] = HostDevice) -> None:
        memory = np.arange(BLOCKS * PAGE, dtype=np.uint32).astype(np.uint8)
        self.pages = host_pages(memory, Region(0, PAGE, PAGE), BLOCKS)
        layout = RankLayout(0, 1, 32, (KvGroup(engine_block_tokens=16),), ((self.pages,),))
        self.copies: EngineCopies[HostPages] = EngineCopies(layout, device)  # type: ignore[arg-type]
        self.copies.take_arena(arena)
        asyncio.run(self.copies.drained())
        self.copies.attached(True)

    def step(self, plan: CopyPlan) -> StepReport:
        self.copies.step_begins(plan)
        self.copies.loads_begin(plan)
        self.copies.step_ended(plan)
        return self.report()

    def report(self) -> StepReport:
        report = StepReport()
        self.copies.report(report)
        return report


def row(*pages: int, slot: BlockId = SLOT) -> RowCopy:
    return RowCopy(tuple(EngineBlockId(page) for page in pages), slot, GENERATION)


def store(number: int, *rows: RowCopy, attachment: int = 1) -> CopyPlan:
    return CopyPlan(attachments=(attachment,), stores=(CopyOrder(number, rows),))


def load(number: int, *rows: RowCopy, attachment: int = 1, reused: Sequence[int] = ()) -> CopyPlan:
    ours = tuple(EngineBlockId(page) for page in reused)
    return CopyPlan(attachments=(attachment,), ours=ours, loads=(CopyOrder(number, rows),))


def ends(report: StepReport) -> dict[int, tuple[ItemStatus, ...]]:
    return {order: ranks[0] for order, ranks in report.copies.items()}


OK, SKIPPED, UNKNOWN = (ItemStatus.OK,), (ItemStatus.SKIPPED,), (ItemStatus.UNKNOWN,)


def test_what_was_stored_is_loaded_into_other_pages_and_every_end_is_told_once(arena: Arena) -> None:
    rank = Rank(arena, lambda: HostDevice(inline=True))
    wanted = rank.pages[2:4].copy()
    assert ends(rank.step(store(1, row(2, 3)))) == {1: OK}
    payload = arena.payload(SLOT)
    assert payload[: 2 * PAGE].tobytes() == wanted.tobytes()
    arena.publish(header_of(0, payload, file_id=arena.arena_id, slot=SLOT, generation=GENERATION))
    assert ends(rank.step(load(2, row(5, 6), reused=[5, 6]))) == {2: OK}
    assert rank.pages[5:7].tobytes() == wanted.tobytes()
    assert rank.report().is_empty
    rank.copies.close()


def test_an_attachment_is_told_when_copies_can_be_made_and_once(arena: Arena) -> None:
    rank = Rank(arena)
    assert rank.report().attachments == {}, "no step has begun"
    assert rank.step(CopyPlan()).attachments == {0: 1}
    assert rank.step(CopyPlan()).attachments == {}
    rank.copies.attached(False)
    asyncio.run(rank.copies.drained())
    assert rank.step(CopyPlan()).attachments == {}, "not attached yet"
    rank.copies.attached(True)
    assert rank.step(CopyPlan()).attachments == {0: 2}
    rank.copies.close()


def test_orders_for_another_attachment_are_refused_and_touch_nothing(arena: Arena) -> None:
    rank = Rank(arena, lambda: HostDevice(inline=True))
    rank.step(CopyPlan())
    asyncio.run(rank.copies.drained())
    assert ends(rank.step(store(1, row(2, 3)))) == {1: SKIPPED}
    before = rank.pages.copy()
    assert ends(rank.step(load(2, row(4, 5)))) == {2: SKIPPED}
    assert arena.read(SLOT).generation == 0
    assert (rank.pages == before).all()
    assert ends(rank.step(CopyPlan(stores=(CopyOrder(3, (row(2, 3),)),)))) == {3: SKIPPED}, "of no attachment at all"
    rank.copies.close()


async def test_a_rank_attaches_anew_only_when_its_copies_have_ended(arena: Arena) -> None:
    device = SimDevice(Random(1))
    rank = await asyncio.to_thread(Rank, arena, lambda: device)
    assert ends(rank.step(store(1, row(2, 3)))) == {}
    draining = asyncio.create_task(rank.copies.drained())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not draining.done()
    assert ends(rank.step(store(2, row(4, 5)))) == {2: SKIPPED}, "nothing follows what is under way"
    device.synchronize()
    await asyncio.wait_for(draining, 10)
    assert ends(rank.report()) == {1: OK}
    rank.copies.close()


def test_an_arena_is_given_up_only_when_its_copies_have_ended(arena: Arena) -> None:
    rank = Rank(arena, lambda: SimDevice(Random(1)))
    wanted = rank.pages[2:4].copy()
    assert ends(rank.step(store(1, row(2, 3)))) == {}
    rank.copies.take_arena(None)
    assert arena.payload(SLOT)[: 2 * PAGE].tobytes() == wanted.tobytes()
    assert ends(rank.step(store(2, row(4, 5)))) == {1: OK, 2: SKIPPED}
    with Arena.create(4, 2 * PAGE) as other:
        rank.copies.take_arena(other)
        rank.step(store(3, row(4, 5)))
        rank.copies.take_arena(None)
        assert other.payload(SLOT)[: 2 * PAGE].tobytes() == rank.pages[4:6].tobytes()


def test_a_rank_that_is_told_to_stop_waits_for_its_copies_and_makes_no_more(arena: Arena) -> None:
    rank = Rank(arena, lambda: SimDevice(Random(1)))
    assert ends(rank.step(store(1, row(2, 3)))) == {}
    assert ends(rank.step(CopyPlan(attachments=(1,), stop=True))) == {1: OK}
    assert ends(rank.step(store(2, row(2, 3)))) == {2: SKIPPED}


class BrokenDevice:
    """A device that has stopped to copy."""

    def __init__(self) -> None:
        self._device = HostDevice(inline=True)

    def __getattr__(self, name: str) -> object:
        return getattr(self._device, name)

    def copy_to_host(self, stream: Stream, copies: Sequence[PageCopy[HostPages]], order: SourceOrder) -> None:
        raise RuntimeError("device lost")


def test_a_fault_ends_all_copies_and_never_the_engine(arena: Arena, caplog: pytest.LogCaptureFixture) -> None:
    rank = Rank(arena, BrokenDevice)
    assert ends(rank.step(store(1, row(2, 3)))) == {1: UNKNOWN}
    assert ends(rank.step(store(2, row(2, 3)))) == {2: SKIPPED}
    assert ends(rank.step(load(3, row(2, 3)))) == {3: SKIPPED}
    assert [record.message for record in caplog.records].count(
        "this rank copies no more; its rows are neither stored nor loaded"
    ) == 1


def test_an_arena_whose_slots_are_too_small_is_never_used(caplog: pytest.LogCaptureFixture) -> None:
    with Arena.create(4, PAGE) as small:
        rank = Rank(small)
        assert rank.step(CopyPlan()).attachments == {}
        assert ends(rank.step(store(1, row(2, 3)))) == {1: SKIPPED}
        assert "row_bytes" in caplog.text


def test_reports_of_ranks_are_put_together() -> None:
    one, other = StepReport(), StepReport()
    one.copied(0, 5, OK)
    one.attachments[0] = 2
    other.copied(1, 5, SKIPPED)
    other.copied(1, 6, OK)
    joined = one.joined(other)
    assert joined.copies == {5: {0: OK, 1: SKIPPED}, 6: {1: OK}}
    assert joined.attachments == {0: 2}
    assert one.copies == {5: {0: OK}}
