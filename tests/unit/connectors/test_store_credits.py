"""Slots granted ahead: taken without waiting, refilled in time, void with whatever made them void."""

import asyncio

from blockyard.connectors.slot_calls import StoreCredits, StoreGrant
from blockyard.core.errors import UnavailableError
from blockyard.core.vocabulary import BlockId, Generation


class Node:
    """Grants what it is asked for, when it is let."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: UnavailableError | None = None

    async def reserve_store(self, count: int) -> StoreGrant:
        self.asked.append(count)
        await self.open.wait()
        if self.error is not None:
            raise self.error
        slots = tuple(BlockId(slot) for slot in range(count))
        return StoreGrant(len(self.asked), slots, tuple(Generation(1) for _ in slots))


async def test_credits_are_asked_for_below_half_and_taken_oldest_first() -> None:
    node = Node()
    credits = StoreCredits(node, 4)
    assert credits.take(2) == ()
    await credits.refill()
    assert [(credit.grant, credit.slot) for credit in credits.take(1)] == [(1, 0)]
    await credits.refill()
    assert node.asked == [4], "three of four are enough"
    credits.take(2)
    await credits.refill()
    assert node.asked == [4, 3]
    assert [(credit.grant, credit.slot) for credit in credits.take(9)] == [(1, 3), (2, 0), (2, 1), (2, 2)]


async def test_one_question_at_a_time_and_an_answer_that_comes_after_the_loss_is_void() -> None:
    node = Node()
    node.open.clear()
    credits = StoreCredits(node, 4)
    first = asyncio.create_task(credits.refill())
    await asyncio.sleep(0)
    await credits.refill()
    assert node.asked == [4]
    credits.forget()
    node.open.set()
    await first
    assert len(credits) == 0
    await credits.refill()
    assert len(credits) == 4


async def test_a_node_that_grants_nothing_now_is_asked_again_later() -> None:
    node = Node()
    node.error = UnavailableError("away")
    credits = StoreCredits(node, 4)
    await credits.refill()
    assert len(credits) == 0
    node.error = None
    await credits.refill()
    assert len(credits) == 4
