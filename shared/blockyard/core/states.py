"""States of a row of the block table, and which changes are legal.

A row is one block of one KV group in one tier. Its state is the truth; handles only name rows::

    FREE ──grant──► MUTABLE ──stage──► COMPLETE ──register──► HELD ⇄ INACTIVE
     ▲                │  ▲───reset───────┘ │  (duplicate)        │        │ evict, condemn, clear
     ├────discard─────┘                    │                     │        ▼
     ├────discard, duplicate───────────────┘   doomed, last unpin└──► AWAIT_FREE
     ├──────────────────────────────release (FREE header written)────────┘
     ├──────── evicted as a relative, reset ───────────────── INACTIVE
     ├──────── last release of a duplicate or of a block to be reset ─ HELD
                  MUTABLE ──handle dropped without an end──► ABANDONED

A row that is *doomed* (cleared or condemned while somebody still uses it) keeps its state but has left the key index;
it can only become AWAIT_FREE or FREE. A *duplicate* is a HELD row beside the *primary* that is found by the same key;
it keeps its primary HELD and is never found itself.
Invariants: numeric values are column values of the block table; free + mutable + complete + held + inactive +
await_free + abandoned = capacity at all times.
Threading: values only.
"""

from enum import Enum, IntEnum, unique
from typing import Final


@unique
class RowState(IntEnum):
    """State of one row."""

    FREE = 0
    """Nobody's; may be granted."""
    MUTABLE = 1
    """Granted to one writer; content undefined."""
    COMPLETE = 2
    """Every shard written and the key known, but not findable yet."""
    HELD = 3
    """Registered and pinned by at least one holder."""
    INACTIVE = 4
    """Registered and not pinned: findable, evictable."""
    AWAIT_FREE = 5
    """Left the index; not grantable until its owner says that the stored header is FREE."""
    ABANDONED = 6
    """Its handle was dropped while a writer may be busy there: out of circulation for the rest of this life."""

    @property
    def label(self) -> str:
        """Lower-case name for metrics."""
        return self.name.lower()


# Plain ints: comparing a column value with an enum member costs several times as much.
FREE: Final = int(RowState.FREE)
MUTABLE: Final = int(RowState.MUTABLE)
COMPLETE: Final = int(RowState.COMPLETE)
HELD: Final = int(RowState.HELD)
INACTIVE: Final = int(RowState.INACTIVE)
AWAIT_FREE: Final = int(RowState.AWAIT_FREE)
ABANDONED: Final = int(RowState.ABANDONED)


# Flags of a row; none is set in rows that nobody uses.
DOOMED: Final = 1
"""Cleared or condemned while it is in somebody's hands."""
DUPLICATE: Final = 2
"""HELD beside the row that is found by the same key."""
OTHER_END: Final = 4
"""At its last release the block does the other thing than the pool's default: leave, or stay findable."""


@unique
class DuplicatePolicy(Enum):
    """What a pool does with a block that is written while its key is registered already."""

    REJECT = "reject"
    """The earlier row is pinned instead and the new one is free at once: a second copy in one tier serves nobody."""
    ALLOW = "allow"
    """The new row stays as a duplicate until its last release: for holders that cannot change to another row."""


@unique
class CondemnOutcome(Enum):
    """What became of a row that was condemned."""

    DOOMED = "doomed"
    """Nobody used it: it awaits its FREE or BAD header now."""
    PINNED = "pinned"
    """It left the index (a duplicate never was there); the last holder's release makes it free-able."""
    STALE = "stale"
    """The row was granted to another block meanwhile, or is not registered: nothing was changed."""


@unique
class LeakKind(Enum):
    """What a handle held when it was dropped without release."""

    WRITING = "writing"
    COMPLETE = "complete"
    PINNED = "pinned"
    DOOMED = "doomed"


TRANSITIONS: Final = frozenset(
    {
        (RowState.FREE, RowState.MUTABLE),
        (RowState.FREE, RowState.INACTIVE),  # adoption of a stored block
        (RowState.FREE, RowState.AWAIT_FREE),  # adoption of the loser of two equal blocks
        (RowState.MUTABLE, RowState.COMPLETE),
        (RowState.MUTABLE, RowState.FREE),
        (RowState.MUTABLE, RowState.ABANDONED),
        (RowState.COMPLETE, RowState.MUTABLE),
        (RowState.COMPLETE, RowState.FREE),
        (RowState.COMPLETE, RowState.HELD),
        (RowState.COMPLETE, RowState.AWAIT_FREE),  # doomed while it was written
        (RowState.HELD, RowState.INACTIVE),
        (RowState.HELD, RowState.FREE),  # a duplicate, or a block that is not kept after its last use
        (RowState.HELD, RowState.AWAIT_FREE),
        (RowState.INACTIVE, RowState.HELD),
        (RowState.INACTIVE, RowState.MUTABLE),  # eviction and grant in one section
        (RowState.INACTIVE, RowState.FREE),  # the relative of one that was evicted so; reset
        (RowState.INACTIVE, RowState.AWAIT_FREE),
        (RowState.AWAIT_FREE, RowState.FREE),
    }
)
"""Every change of state that one call may make to one row."""
