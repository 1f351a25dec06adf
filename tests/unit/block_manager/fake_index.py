"""The shared index over the fake store: it answers a question when it is told to."""

from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass

from blockyard.core.block_name import BlockName
from blockyard.core.events import BlockScope
from blockyard.core.stored_key import stored_keys
from blockyard.core.vocabulary import Availability, WorkerRole
from blockyard.testing.fake_slots import FakeStore
from blockyard.wire.trace_parent import NO_TRACE, TraceParent
from blockyard_block_manager.load import FindCallback


@dataclass
class Question:
    """A lookup that was not answered yet."""

    scope: BlockScope
    names: tuple[BlockName, ...]
    done: FindCallback
    trace: TraceParent


class FakeIndex:
    """``SharedIndex`` of a remote tier that is there while its role is among the ``connected``."""

    def __init__(self, store: FakeStore, connected: Set[WorkerRole]) -> None:
        self.questions: deque[Question] = deque()
        self._store = store
        self._connected = connected

    def usable(self) -> bool:
        return WorkerRole.REMOTE_TIER in self._connected

    def find(
        self,
        scope: BlockScope,
        names: Sequence[BlockName],
        timeout_seconds: float,
        done: FindCallback,
        trace: TraceParent = NO_TRACE,
    ) -> None:
        self.questions.append(Question(scope, tuple(names), done, trace))

    def answer(self) -> None:
        question = self.questions.popleft()
        keys = stored_keys((name.key for name in question.names), question.scope.group)
        found = [self._store.index.get(key) if self.usable() else None for key in keys]
        absent = Availability.MISS if self.usable() else Availability.UNKNOWN
        question.done([(absent if locator is None else Availability.G4, locator) for locator in found])
