"""A model of a block pool: one dict of rows, two lists, no cleverness. It predicts every row that the pool picks."""

from dataclasses import dataclass, field

from blockyard.core.states import CondemnOutcome, RowState
from blockyard.core.vocabulary import ContentKey


@dataclass
class ModelRow:
    """One row."""

    state: RowState = RowState.FREE
    generation: int = 0
    name: tuple[int, ContentKey] | None = None
    refs: int = 0
    doomed: bool = False
    shards: int = 0
    latest_grant: int = 0
    """Highest generation ever; above ``generation`` only while an older stored block lives in the row."""


@dataclass
class BlockModel:
    """Rows, the free list (next grant first) and the eviction order (next victim first)."""

    capacity: int
    rows: dict[int, ModelRow] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)
    victims: list[int] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = {row: ModelRow() for row in range(self.capacity)}
        self.free = list(self.rows)

    def find(self, name: tuple[int, ContentKey]) -> int | None:
        """Row that is found by this name."""
        registered = (RowState.HELD, RowState.INACTIVE)
        found = [n for n, row in self.rows.items() if row.state in registered and not row.doomed and row.name == name]
        assert len(found) <= 1
        return found[0] if found else None

    def count(self, state: RowState) -> int:
        return sum(row.state is state for row in self.rows.values())

    # --- changes ---
    def allocate(self, count: int, evict: bool) -> list[int] | None:
        if count > len(self.free) + (len(self.victims) if evict else 0):
            return None
        taken = self.free[:count]
        taken += self.victims[: count - len(taken)]
        self.free = [row for row in self.free if row not in taken]
        self.victims = [row for row in self.victims if row not in taken]
        for number in taken:
            self._grant(number)
        return taken

    def take(self, numbers: list[int]) -> bool:
        """Grant these rows if all are free."""
        if len(set(numbers)) != len(numbers) or not set(numbers) <= set(self.free):
            return False
        for number in numbers:
            self.free.remove(number)
            self._grant(number)
        return True

    def _grant(self, number: int) -> None:
        generation = self.rows[number].latest_grant + 1
        self.rows[number] = ModelRow(RowState.MUTABLE, generation, latest_grant=generation)

    def abandon(self, numbers: list[int]) -> None:
        for number in numbers:
            row = self.rows[number]
            self.rows[number] = ModelRow(RowState.ABANDONED, row.generation, latest_grant=row.latest_grant)

    def to_free(self, numbers: list[int]) -> None:
        for number in numbers:
            latest = self.rows[number].latest_grant
            self.rows[number] = ModelRow(generation=latest, latest_grant=latest)
            self.free.append(number)

    def stage(self, numbers: list[int], names: list[tuple[int, ContentKey]]) -> None:
        for number, name in zip(numbers, names, strict=True):
            self.rows[number].state = RowState.COMPLETE
            self.rows[number].name = name

    def reset(self, numbers: list[int]) -> None:
        for number in numbers:
            self.rows[number].state = RowState.MUTABLE
            self.rows[number].shards = 0

    def register(self, numbers: list[int]) -> list[int]:
        holders: list[int] = []
        shared: list[int] = []
        duplicates: list[int] = []
        for number in numbers:
            row = self.rows[number]
            assert row.name is not None
            holder = self.find(row.name)
            if row.doomed:
                self.await_free([number])
                self.ready.append(number)
            elif holder is None:
                row.state, row.refs = RowState.HELD, 1
                holders.append(number)
            else:
                duplicates.append(number)
                shared.append(holder)
                holders.append(holder)
        self.retain(shared)
        self.to_free(duplicates)
        return holders

    def retain(self, numbers: list[int]) -> None:
        for number in numbers:
            row = self.rows[number]
            if row.state is RowState.INACTIVE:
                row.state = RowState.HELD
                self.victims.remove(number)
            row.refs += 1

    def release(self, numbers: list[int]) -> None:
        idle: list[int] = []
        for number in numbers:
            row = self.rows[number]
            row.refs -= 1
            if not row.refs and row.doomed:
                self.await_free([number])
                self.ready.append(number)
            elif not row.refs:
                row.state = RowState.INACTIVE
                idle.append(number)
        self.victims += reversed(idle)

    def await_free(self, numbers: list[int]) -> None:
        for number in numbers:
            self.rows[number].state = RowState.AWAIT_FREE
            self.rows[number].doomed = False

    def evict(self, count: int) -> list[int]:
        taken, self.victims = self.victims[:count], self.victims[count:]
        self.await_free(taken)
        return taken

    def condemn(self, number: int, generation: int) -> CondemnOutcome:
        row = self.rows[number]
        registered = row.state in (RowState.HELD, RowState.INACTIVE) and not row.doomed
        if not registered or row.generation != generation:
            return CondemnOutcome.STALE
        if row.state is RowState.HELD:
            row.doomed = True
            return CondemnOutcome.PINNED
        self.victims.remove(number)
        self.await_free([number])
        return CondemnOutcome.DOOMED

    def clear(self) -> list[int]:
        for row in self.rows.values():
            row.doomed |= row.state in (RowState.MUTABLE, RowState.COMPLETE, RowState.HELD)
        return self.evict(len(self.victims))

    def adopt(self, number: int, generation: int, name: tuple[int, ContentKey]) -> list[int]:
        """One stored block; returns the rows to be freed."""
        self.free.remove(number)
        holder = self.find(name)
        latest = max(self.rows[number].latest_grant, generation)
        row = self.rows[number] = ModelRow(RowState.INACTIVE, generation, name, latest_grant=latest)
        if holder is None:
            self.victims.append(number)
            return []
        if self.rows[holder].state is RowState.INACTIVE and self.rows[holder].generation < generation:
            self.victims.remove(holder)
            self.victims.append(number)
            self.await_free([holder])
            return [holder]
        row.state = RowState.AWAIT_FREE
        return [number]
