"""A table that does nothing but obey: every call that it makes to a policy is legal, and after each it counts the rows.

Chains branch off each other; blocks come in rows, are used, released, evicted, condemned, found at start, and come back
later in other rows. Steps take a source of choices, so that random numbers as well as Hypothesis can lead.
Invariants: the policy holds exactly the rows that are idle here, each once; looking at it changes nothing.
Threading: one thread.
"""

from collections.abc import Callable, Sequence
from typing import Final, final

from blockyard.core.eviction.base import CheckedPolicy, PolicyFactory
from blockyard.core.vocabulary import BlockId
from blockyard.testing.row_columns import NamedRows

Pick = Callable[[int], int]
"""Chooses a number from 0 to below the given one."""
Block = tuple[int, str]
"""Group and label, which names the block and all before it: ``"ab"`` stands behind ``"a"``."""

_LETTERS: Final = "abc"
_DEEPEST: Final = 5
_GROUPS: Final = 2


@final
class EvictionDriver:
    """Leads one policy through the lives of blocks in ``capacity`` rows."""

    def __init__(self, make_policy: PolicyFactory, capacity: int) -> None:
        """Start with free rows."""
        self.columns = NamedRows(capacity)
        self.policy = make_policy(self.columns)
        self.row_of: dict[Block, BlockId] = {}
        self.free = [BlockId(row) for row in range(capacity)]
        self.held: list[list[BlockId]] = []
        self.idle: set[BlockId] = set()
        self.done = dict.fromkeys(STEPS, 0)
        """How often each step had something to do."""

    def step(self, name: str, pick: Pick) -> None:
        """Do one thing, if it is possible now, and check what must hold then."""
        self.done[name] += STEPS[name](self, pick)
        self.check()

    def check(self) -> None:
        """Compare the policy with the rows that are idle."""
        order = list(self.policy)
        assert len(self.policy) == len(order) == len(self.idle)
        assert set(order) == self.idle, (order, self.idle)
        assert list(self.policy) == order, "looking changed the order"
        if isinstance(self.policy, CheckedPolicy):
            assert not self.policy.violations()

    # --- steps: each returns whether it found something to do ---------------------------------------------------------
    def request(self, pick: Pick) -> bool:
        """Use a chain: pin what is there, register what is not, in rows that are free or made free."""
        chain = self._chain(pick)
        there = [block for block in chain if block in self.row_of]
        fresh = [block for block in chain if block not in self.row_of]
        if len(fresh) > len(self.free) + len(self.idle - {self.row_of[block] for block in there}):
            return False
        self._pin([self.row_of[block] for block in there])
        missing = len(fresh) - len(self.free)
        if missing > 0:
            self._evict(missing)
        self.policy.touch(self._name(fresh))
        self.held.append([self.row_of[block] for block in chain])
        return True

    def release(self, pick: Pick) -> bool:
        """One holder lets go; rows without another one become idle, in chain order."""
        if not self.held:
            return False
        rows = self.held.pop(pick(len(self.held)))
        idle = [row for row in rows if not self._is_held(row)]
        self.policy.insert(idle)
        self.idle.update(idle)
        return bool(idle)

    def evict(self, pick: Pick) -> bool:
        """Some rows leave in the order that the policy shows, which is static while nothing happens."""
        count = pick(4)
        self._evict(min(count, len(self.idle)))
        return bool(count)

    def take_and_put_back(self, pick: Pick) -> bool:
        """A grant fails after its victims were chosen, all at once or in two parts: it is as if nothing had been."""
        before = list(self.policy)
        first = self.policy.take(pick(4))
        second = self.policy.take(pick(3))
        assert first + second == before[: len(first + second)]
        self.policy.put_back(first + second)
        assert list(self.policy) == before
        return bool(first)

    def condemn(self, pick: Pick) -> bool:
        """A block is damaged and leaves, from the order or from its holders."""
        if not self.row_of:
            return False
        row = self.row_of[sorted(self.row_of)[pick(len(self.row_of))]]
        if row in self.idle:
            self.policy.remove([row])
            self.idle.discard(row)
        self._leave([row])
        for rows in self.held:
            if row in rows:
                rows.remove(row)
        return True

    def adopt(self, pick: Pick) -> bool:
        """Blocks that were stored before the start are found: nobody ever used them."""
        fresh = [block for block in self._chain(pick) if block not in self.row_of][: len(self.free)]
        rows = self._name(fresh)
        self.policy.insert(rows)
        self.idle.update(rows)
        return bool(rows)

    # --- inside -------------------------------------------------------------------------------------------------------
    def _chain(self, pick: Pick) -> list[Block]:
        group = pick(_GROUPS)
        label = "".join(_LETTERS[pick(len(_LETTERS))] for _ in range(1 + pick(_DEEPEST)))
        return [(group, label[: depth + 1]) for depth in range(len(label))]

    def _is_held(self, row: BlockId) -> bool:
        return any(row in rows for rows in self.held)

    def _pin(self, rows: Sequence[BlockId]) -> None:
        self.policy.touch(rows)
        woken = [row for row in rows if row in self.idle]
        self.policy.remove(woken)
        self.idle.difference_update(woken)

    def _evict(self, count: int) -> None:
        shown = list(self.policy)[:count]
        victims = self.policy.take(count)
        assert victims == shown, (victims, shown)
        self.idle.difference_update(victims)
        self._leave(victims)

    def _leave(self, rows: Sequence[BlockId]) -> None:
        self.policy.forget(rows)
        self.row_of = {block: row for block, row in self.row_of.items() if row not in rows}
        self.free += rows

    def _name(self, blocks: Sequence[Block]) -> list[BlockId]:
        rows = []
        for block in blocks:
            row = self.free.pop(0)
            self.row_of[block] = row
            self.columns.name_block(row, *block)
            rows.append(row)
        return rows


STEPS: Final[dict[str, Callable[[EvictionDriver, Pick], bool]]] = {
    "request": EvictionDriver.request,
    "release": EvictionDriver.release,
    "evict": EvictionDriver.evict,
    "take_and_put_back": EvictionDriver.take_and_put_back,
    "condemn": EvictionDriver.condemn,
    "adopt": EvictionDriver.adopt,
}
