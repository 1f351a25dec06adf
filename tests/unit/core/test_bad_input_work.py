"""Queues, budgets, marks and the sketch of uses refuse what is no number or no key, with fields, and change nothing."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.core.state_of import state_of

from blockyard.core.cost import CostRules
from blockyard.core.endurance import EnduranceBudget
from blockyard.core.errors import BlockyardError, KernelError
from blockyard.core.frequency import FrequencySketch
from blockyard.core.pack_plan import PackGeometry
from blockyard.core.stored_key import StoredKey
from blockyard.core.use_counts import UseCounts
from blockyard.core.watermarks import Watermarks
from blockyard.core.work_queue import QueueLimits, WorkQueue
from blockyard.testing.clock import FakeClock

KEY = StoredKey(b"k" * 16)
NO_NUMBERS: dict[str, Any] = {
    "true": True,
    "float": 1.5,
    "nan": math.nan,
    "infinity": math.inf,
    "text": "1",
    "none": None,
}
NO_SIZES: dict[str, Any] = {"negative": -1, **NO_NUMBERS}
Queue = WorkQueue[str, str, int]


def queue() -> Queue:
    waiting: Queue = WorkQueue(QueueLimits(4, 100))
    waiting.put("a", 1, lane="l", priority=1, size_bytes=10)
    waiting.put("b", 2, lane="m", priority=2)
    return waiting


def budget() -> EnduranceBudget:
    spent = EnduranceBudget(86_400_000, 1_000, FakeClock())
    spent.spend(500_000)
    return spent


def sketch() -> FrequencySketch:
    used = FrequencySketch(8)
    used.touch([KEY, KEY])
    return used


Act = Callable[[Any, Any], object]
KINDS: list[tuple[Callable[[], Any], dict[str, Act], dict[str, Any]]] = [
    (
        queue,
        {
            "priority of new work": lambda waiting, value: waiting.put("c", 3, lane="l", priority=value),
            "raised priority": lambda waiting, value: waiting.raise_to("a", value),
            "number of entries to take": lambda waiting, value: waiting.take(value),
        },
        NO_NUMBERS,
    ),
    (
        queue,
        {
            "size of new work": lambda waiting, value: waiting.put("c", 3, lane="l", size_bytes=value),
            "room for entries": lambda _, value: WorkQueue(QueueLimits(value)),
            "room for bytes": lambda _, value: WorkQueue(QueueLimits(1, value)),
        },
        NO_SIZES,
    ),
    (queue, {"work of a name that waits": lambda waiting, _: waiting.put("a", 3, lane="l")}, {"": None}),
    (
        budget,
        {
            "bytes to spend": lambda spent, value: spent.spend(value),
            "bytes to give back": lambda spent, value: spent.refund(value),
            "size of an item": lambda spent, value: spent.affordable(value),
            "budget of a day": lambda _, value: EnduranceBudget(value, 1, FakeClock()),
            "item of a budget": lambda _, value: EnduranceBudget(100, value, FakeClock()),
        },
        NO_SIZES,
    ),
    (budget, {"more than there is": lambda spent, value: spent.spend(value)}, {"": 1 << 40}),
    (
        budget,
        {
            "low mark": lambda _, value: Watermarks(value, 4),
            "high mark": lambda _, value: Watermarks(1, value),
        },
        NO_SIZES,
    ),
    (sketch, {"capacity of a sketch": lambda _, value: FrequencySketch(value)}, {"zero": 0, **NO_SIZES}),
    (
        budget,
        {
            "blocks whose uses are counted": lambda _, value: UseCounts(FakeClock(), value),
            "payload of a pack": lambda _, value: PackGeometry(value, 1 << 20),
            "size of a pack": lambda _, value: PackGeometry(1 << 20, value),
        },
        {"zero": 0, **NO_SIZES},
    ),
    (
        budget,
        {
            "least measurements": lambda _, value: CostRules(min_samples=value),
            "tokens of a prefill that counts": lambda _, value: CostRules(min_prefill_tokens=value),
            "unmeasured hits between explorations": lambda _, value: CostRules(explore_unmeasured_every=value),
            "dear hits between explorations": lambda _, value: CostRules(explore_dear_every=value),
            "rows of an exploration": lambda _, value: CostRules(explore_rows=value),
        },
        NO_NUMBERS,
    ),
    (
        sketch,
        {
            "keys that are used": lambda used, keys: used.touch(keys),
            "keys that are asked for": lambda used, keys: used.estimate(keys),
        },
        {
            "short": [b"k"],
            "long": [KEY, b"k" * 17],
            "lengths that add up": [KEY, b"k" * 8, b"k" * 24],
            "empty": [b""],
        },
    ),
]
CASES = [
    pytest.param(make, act, value, id=f"{verb}: {name}")
    for make, acts, values in KINDS
    for verb, act in acts.items()
    for name, value in values.items()
]


@pytest.mark.parametrize(("make", "act", "value"), CASES)
def test_what_is_no_number_or_no_key_is_refused_with_fields_and_changes_nothing(
    make: Callable[[], Any], act: Act, value: object
) -> None:
    structure = make()
    before = state_of(structure)
    with pytest.raises(BlockyardError) as caught:
        act(structure, value)
    assert caught.value.fields
    assert state_of(structure) == before


def test_a_refused_entry_leaves_the_order_and_the_bound_as_they_were() -> None:
    waiting = queue()
    for bad in ({"priority": math.nan}, {"size_bytes": -100}):
        with pytest.raises(KernelError):
            waiting.put("c", 3, lane="l", **bad)
    assert waiting.size_bytes == 10
    assert [waiting.take(4), waiting.take(4), waiting.take(4)] == [[2], [1], []]
