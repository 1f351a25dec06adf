"""A model of a block pool: one dict of rows, two lists, no cleverness. It predicts every row that the pool picks."""

from dataclasses import dataclass, field

from blockyard.core.block_facts import StagedColumns
from blockyard.core.states import CondemnOutcome, RowState
from blockyard.core.vocabulary import ROOT_KEY, ContentKey, GroupId
from blockyard.testing.blocks import IDENTITY


def staged_columns(names: list[tuple[int, ContentKey]]) -> StagedColumns:
    """Columns for blocks with these names, which are of one group."""
    return StagedColumns(
        keys=[name for _, name in names],
        parents=[ROOT_KEY] * len(names),
        positions=range(len(names)),
        identity=IDENTITY,
        group=GroupId(names[0][0] if names else 0),
    )


_IN_HANDS = (RowState.MUTABLE, RowState.COMPLETE, RowState.HELD)


@dataclass
class ModelRow:
    """One row."""

    state: RowState = RowState.FREE
    generation: int = 0
    name: tuple[int, ContentKey] | None = None
    refs: int = 0
    doomed: bool = False
    primary: int | None = None
    """Row that is found by the same key, where this one is a duplicate."""
    reset: bool = False
    """Whether the block leaves at its last release."""
    written: set[int] = field(default_factory=set)
    """Shards that are written, while the row is MUTABLE."""
    latest_grant: int = 0
    """Highest generation ever; above ``generation`` only while an older stored block lives in the row."""


@dataclass
class BlockModel:
    """Rows, the free list (next grant first) and the eviction order (next victim first)."""

    capacity: int
    allow: bool = False
    """Whether duplicates stay."""
    reset_default: bool = False
    shards: int = 1
    rows: dict[int, ModelRow] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)
    victims: list[int] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    groups: set[int] = field(default_factory=set)
    """Groups of which blocks were registered."""
    cut_off: set[int] = field(default_factory=set)
    """Rows of cleared blocks whose entries stand in an index still."""
    swept_below: int = 0
    relatives_left: int = 0
    """Blocks that stayed since they were held when one of their family was evicted."""

    def __post_init__(self) -> None:
        self.rows = {row: ModelRow() for row in range(self.capacity)}
        self.free = list(self.rows)

    def find(self, name: tuple[int, ContentKey]) -> int | None:
        """Row that is found by this name."""
        registered = (RowState.HELD, RowState.INACTIVE)
        candidates = {n: row for n, row in self.rows.items() if row.state in registered and row.name == name}
        found = [n for n, row in candidates.items() if not row.doomed and row.primary is None]
        assert len(found) <= 1
        return found[0] if found else None

    def registered(self) -> list[tuple[int, ContentKey]]:
        """Names that a row is found by, in the order of those rows."""
        return [row.name for n, row in self.rows.items() if row.name is not None and self.find(row.name) == n]

    def count(self, state: RowState) -> int:
        return sum(row.state is state for row in self.rows.values())

    def family(self, number: int) -> list[int]:
        """This registered row, and those that are found by its key in other groups."""
        name = self.rows[number].name
        assert name is not None
        groups = {row.name[0] for row in self.rows.values() if row.name is not None}
        found = [self.find((group, name[1])) for group in sorted(groups - {name[0]})]
        return [number, *(row for row in found if row is not None)]

    # --- changes ---
    def allocate(self, count: int, evict: bool) -> tuple[list[int], list[int]] | None:
        """Granted rows, and evicted ones in the order of eviction; those beyond the count are free now."""
        if count > len(self.free) + (len(self.victims) if evict else 0):
            return None
        taken, self.free = self.free[:count], self.free[count:]
        short = count - len(taken)
        victims = self._take_victims(short)
        taken += sorted(victims[:short])
        self.to_free(victims[short:])
        for number in taken:
            self._grant(number)
        return taken, victims

    def _take_victims(self, count: int) -> list[int]:
        """At least so many rows in the order of eviction, and every idle relative of one of them."""
        taken: list[int] = []
        left: set[int] = set()
        while len(taken) < count:
            part = self.victims[: max(1, (count - len(taken)) // max(1, len(self.groups)))]
            relatives = [row for number in part for row in self.family(number) if row not in part]
            idle = [row for row in relatives if row in self.victims]
            left |= set(relatives) - set(idle)
            taken += [*part, *idle]
            self.victims = [row for row in self.victims if row not in taken]
        self.relatives_left += len(left)
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
        reset = self.reset_default
        self.rows[number] = ModelRow(RowState.MUTABLE, generation, reset=reset, latest_grant=generation)

    def abandon(self, numbers: list[int]) -> None:
        for number in numbers:
            row = self.rows[number]
            self.rows[number] = ModelRow(RowState.ABANDONED, row.generation, latest_grant=row.latest_grant)

    def to_free(self, numbers: list[int]) -> None:
        for number in numbers:
            latest = self.rows[number].latest_grant
            self.rows[number] = ModelRow(generation=latest, latest_grant=latest)
            self.free.append(number)

    def unwritten(self, numbers: list[int]) -> bool:
        """Whether one of these rows lacks a shard."""
        return any(len(self.rows[number].written) < self.shards for number in numbers if self.shards > 1)

    def stage(self, numbers: list[int], names: list[tuple[int, ContentKey]]) -> None:
        for number, name in zip(numbers, names, strict=True):
            self.rows[number].state = RowState.COMPLETE
            self.rows[number].name = name

    def reset(self, numbers: list[int]) -> None:
        for number in numbers:
            self.rows[number].state = RowState.MUTABLE
            self.rows[number].written = set()

    def register(self, numbers: list[int]) -> list[int]:
        holders: list[int] = []
        shared: list[int] = []
        duplicates: list[int] = []
        for number in numbers:
            row = self.rows[number]
            assert row.name is not None
            holder = self.find(row.name)
            if not row.doomed:
                self.groups.add(row.name[0])
                self.make_way(row.name)
            if row.doomed:
                self.await_free([number])
                self.ready.append(number)
            elif holder is None:
                row.state, row.refs = RowState.HELD, 1
                holders.append(number)
            elif self.allow:
                row.state, row.refs, row.primary = RowState.HELD, 1, holder
                shared.append(holder)
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

    def release(self, numbers: list[int]) -> list[int]:
        """Returns rows of blocks that left the index, which are free."""
        idle: list[int] = []
        for number in numbers:
            self.rows[number].refs -= 1
            if not self.rows[number].refs:
                idle.append(number)
        rows = self.rows
        primaries = [primary for number in idle if (primary := rows[number].primary) is not None]
        doomed = [number for number in idle if rows[number].doomed]
        duplicates = [number for number in idle if not rows[number].doomed and rows[number].primary is not None]
        others = [number for number in idle if number not in doomed + duplicates]
        gone = [number for number in others if rows[number].reset]
        kept = [number for number in others if not rows[number].reset]
        self.await_free(doomed)
        self.ready += doomed
        self.cut_off -= set(doomed)
        self.to_free(duplicates)
        self.to_free(gone)
        for number in kept:
            rows[number].state = RowState.INACTIVE
        self.victims += reversed(kept)
        return gone + self.release(primaries) if primaries else gone

    def reset_on_release(self, numbers: list[int], reset: bool) -> None:
        for number in numbers:
            if self.rows[number].primary is None:
                self.rows[number].reset = reset

    def reset_inactive(self) -> list[int] | None:
        """Rows that are free now; None where somebody holds something."""
        unused = (RowState.FREE, RowState.INACTIVE, RowState.ABANDONED)
        if any(row.state not in unused for row in self.rows.values()):
            return None
        idle, self.victims = self.victims, []
        self.to_free(idle)
        return idle

    def await_free(self, numbers: list[int]) -> None:
        for number in numbers:
            self.rows[number].state = RowState.AWAIT_FREE
            self.rows[number].doomed = False
            self.rows[number].primary = None

    def evict(self, count: int) -> list[int]:
        taken = self._take_victims(min(count, len(self.victims)))
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

    def cut(self) -> tuple[int, int, int]:
        """Everything is forgotten; numbers of rows that nobody held, of held ones, and of those being written."""
        found = {row for row in map(self.find, self.registered()) if row is not None}
        doomed = [row for row in self.rows.values() if row.state in _IN_HANDS and not row.doomed]
        idle, self.victims = self.victims, []
        for row in doomed:
            row.doomed = True
        self.cut_off |= found
        if found:
            self.swept_below = 0
        self.await_free(idle)
        pinned = sum(row.state is RowState.HELD for row in doomed)
        return len(idle), pinned, len(doomed) - pinned

    def name_of(self, number: int) -> tuple[int, ContentKey]:
        name = self.rows[number].name
        assert name is not None
        return name

    def next_rows(self, most: int) -> list[int]:
        """Rows that a sweep looks at."""
        while self.cut_off:
            window = range(self.swept_below, self.swept_below + most)
            if found := sorted(self.cut_off.intersection(window)):
                return found
            self.swept_below += most
        return []

    def sweep(self, numbers: list[int]) -> list[int]:
        """These rows are swept; those that await freeing now."""
        self.cut_off -= set(numbers)
        return [number for number in numbers if self.rows[number].state is RowState.AWAIT_FREE]

    def entries_at(self, names: list[tuple[int, ContentKey]]) -> set[int]:
        return {number for number, row in self.rows.items() if row.name in names}

    def make_way(self, name: tuple[int, ContentKey]) -> None:
        """A block of this name comes again."""
        self.ready += self.sweep([number for number in self.cut_off if self.rows[number].name == name])

    def adopt(self, number: int, generation: int, name: tuple[int, ContentKey]) -> list[int]:
        """One stored block; returns the rows to be freed."""
        self.free.remove(number)
        self.groups.add(name[0])
        self.make_way(name)
        holder = self.find(name)
        latest = max(self.rows[number].latest_grant, generation)
        row = self.rows[number] = ModelRow(
            RowState.INACTIVE, generation, name, reset=self.reset_default, latest_grant=latest
        )
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
