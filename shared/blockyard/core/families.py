"""Families of blocks: registered rows of one tier with one key, in several KV groups of a model.

A prefix needs the rows of all groups, so a family goes whole: eviction takes its INACTIVE rows together and leaves the
HELD ones to their holders. A table that knows one group pays one comparison per eviction for all this.
While rows that a clear cut off stand in the order, victims are looked for among its first rows only, and what is
missing then is taken as it comes: no eviction passes a million rows, or fails for them.
Invariants: a call that raises has given back what it took from the policy.
Threading: the owner thread of the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, cast, final

import numpy as np

from blockyard.core.errors import OutOfBlocksError
from blockyard.core.eviction.base import EvictionPolicy
from blockyard.core.name_columns import NameColumns
from blockyard.core.states import HELD, INACTIVE
from blockyard.core.vocabulary import BlockId

SEARCHED_ROWS: Final = 2_048
"""So many rows that are cut off are passed by one eviction."""


@final
@dataclass(frozen=True, slots=True)
class Victims:
    """Rows that were taken out of the policy, and the number of relatives that stay since they are held."""

    rows: list[BlockId]
    left: int


def take_in_order(policy: EvictionPolicy, state: Sequence[int], count: int) -> list[BlockId]:
    """Take ``count`` INACTIVE rows out of the policy, which must have as many.

    Raises:
        OutOfBlocksError: the policy did not keep its promise; it is as if nothing had been asked.
    """
    if not count:
        return []
    victims = policy.take(count)
    if len(victims) == len(set(victims)) == count and all(state[row] == INACTIVE for row in victims):
        return victims
    policy.put_back(victims)
    raise OutOfBlocksError("the eviction policy gave wrong victims", asked=count, given=len(victims))


def next_in_order(policy: EvictionPolicy, state: bytearray, swept: bool, count: int) -> list[BlockId]:
    """Up to ``count`` INACTIVE rows that go first; takes nothing.

    ``swept``: rows that are cut off stand in the order.
    """
    if not swept:
        return list(islice(policy, count))
    first = islice(policy, count + SEARCHED_ROWS)
    found = list(islice(dict.fromkeys(row for row in first if state[row] == INACTIVE), count))
    if len(found) < count:
        passed = set(found)
        idle = np.flatnonzero(np.frombuffer(state, dtype=np.uint8) == INACTIVE)[: count + len(passed)]
        rest = (row for row in cast("list[BlockId]", idle.tolist()) if row not in passed)
        found += islice(rest, count - len(found))
    return found


def take_families(policy: EvictionPolicy, state: bytearray, names: NameColumns, count: int) -> Victims:
    """Take INACTIVE rows and their INACTIVE relatives: ``count``, and more only where a family would be torn.

    Raises:
        OutOfBlocksError: see ``take_in_order``.
    """
    groups, swept = len(names.index), names.cut is not None
    if groups < 2 and not swept:
        return Victims(take_in_order(policy, state, count), 0)
    first = next_in_order(policy, state, swept, count) if swept else []
    victims: list[BlockId] = []
    left: set[BlockId] = set()
    while len(victims) < count:
        # A part of what is missing, since each row may bring a relative from every other group.
        part = max(1, (count - len(victims)) // groups)
        if swept:
            chosen = set(victims)
            taken = list(islice((row for row in first if row not in chosen), part))
            policy.remove(taken)
        else:
            try:
                taken = take_in_order(policy, state, part)
            except OutOfBlocksError:
                policy.put_back(victims)
                raise
        known = dict.fromkeys(taken)
        known.update(dict.fromkeys(names.relatives(taken)))
        others = list(known)[len(taken) :]
        idle = [row for row in others if state[row] == INACTIVE]
        left.update(row for row in others if state[row] == HELD)
        policy.remove(idle)
        victims += taken
        victims += idle
    return Victims(victims, len(left))
