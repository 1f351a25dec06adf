"""What TIDE knows of a block: how often it was used, under several half-lives at once.

Under a half-life a use weighs one, and half of that a half-life later. The first use weighs a sixteenth: most blocks
are never used again, and that a block came says less than that it came back. Time is the number of blocks that entered
the tier, in units of its capacity, so it stands still while nobody writes. Blocks are compared by ``keep_value``, the
logarithm of their weights taken back to time 0: it is constant between uses, so nothing ages and no order has to be
made again. A block is used whenever a block behind it in its chain is, so its value is not below theirs.
That is LRFU (Lee et al., IEEE Transactions on Computers, 2001) in logarithms, over chains.
Blocks that were used together since they came share one history, also when they have left (``departed_blocks``).
Invariants: histories are never changed, only replaced. Threading: pure functions.
"""

from collections.abc import Sequence
from itertools import chain
from math import exp2, inf, log2
from typing import Final

import numpy as np
import numpy.typing as npt

HALF_LIVES: Final = (0.02, 0.25, 1.0, 4.0)
"""In capacities of blocks that entered; the first is LRU in effect, the last nearly counts uses."""
FIRST_USE: Final = 0.0625
"""Weight of the first use."""
_RATES: Final = tuple(1 / half_life for half_life in HALF_LIVES)

History = tuple[float, float, float, float, float]
"""Time of the last use, and the weight then under each half-life."""
NEVER_USED: Final[History] = (0.0, 0.0, 0.0, 0.0, 0.0)


def decay(age: float) -> tuple[float, ...]:
    """What is left of a weight of one after ``age``, under each half-life."""
    return tuple([exp2(-age * rate) for rate in _RATES])


def used_once(now: float) -> History:
    """History of a block with one use."""
    return (now, FIRST_USE, FIRST_USE, FIRST_USE, FIRST_USE)


def used_again(history: History, now: float, decayed: Sequence[float]) -> History:
    """History of a used block after one more use; ``decayed`` is ``decay`` of the time since the last one."""
    _, first, second, third, fourth = history
    by_first, by_second, by_third, by_fourth = decayed
    return (
        now,
        1.0 + first * by_first,
        1.0 + second * by_second,
        1.0 + third * by_third,
        1.0 + fourth * by_fourth,
    )


def keep_value(history: History, half_life: int) -> float:
    """Worth of a block under the half-life of that index: the smallest goes first; minus infinity if never used."""
    weight = history[half_life + 1]
    return log2(weight) + history[0] * _RATES[half_life] if weight else -inf


def keep_values(histories: Sequence[History]) -> npt.NDArray[np.float64]:
    """``keep_value`` of used blocks: one row per half-life, one column per history."""
    flat = np.fromiter(chain.from_iterable(histories), np.float64, len(histories) * (1 + len(HALF_LIVES)))
    columns = flat.reshape(len(histories), -1).T
    values: npt.NDArray[np.float64] = np.log2(columns[1:]) + columns[0] * np.array(_RATES)[:, np.newaxis]
    return values
