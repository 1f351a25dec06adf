"""A device whose streams run in a seeded adversarial order, bound by nothing but stream order and events.

Work is cut into pieces of a few bytes. Each turn picks a stream, by weights that are drawn anew from time to time, so
that one stream starves and another runs ahead, and does some pieces of its first work: a copy may be half done while
others work on the same bytes. A copy with source order ``ANY`` reads parts of its source at any earlier turn.
Events tell the truth, and stand for their latest record, as those of a GPU do.
Threading: one thread, which also gives the turns.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias, final

from blockyard.core.errors import UnsupportedOperationError
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.device.base import Event, PageCopy, SourceOrder, Stream
from blockyard.tiers.device.host import HostPages, check_host_copies

Piece: TypeAlias = Callable[[], None]
"""A part of some work that happens at once."""
_CHUNK_BYTES: Final = 8
_REDRAW_TURNS: Final = 24


class _Record:
    """One record of an event."""

    __slots__ = ("done",)

    def __init__(self, *, done: bool = False) -> None:
        self.done = done

    def reached(self) -> None:
        self.done = True


@final
class SimEvent:
    """An event of a simulated device."""

    __slots__ = ("latest",)

    def __init__(self) -> None:
        """Begin unrecorded: nothing to wait for."""
        self.latest = _Record(done=True)

    def query(self) -> bool:
        """Whether the latest record was reached."""
        return self.latest.done


class _Work:
    """Pieces in order, once ``after`` is done."""

    __slots__ = ("after", "pieces")

    def __init__(self, pieces: Sequence[Piece], after: _Record | None = None) -> None:
        self.pieces = deque(pieces)
        self.after = after


class _Chunk:
    """A few bytes on their way: read once, then written once."""

    __slots__ = ("_source", "_target", "_taken")

    def __init__(self, source: ByteArray, target: ByteArray) -> None:
        self._source, self._target = source, target
        self._taken: ByteArray | None = None

    def read(self) -> None:
        if self._taken is None:
            self._taken = self._source.copy()

    def move(self) -> None:
        self.read()
        if self._taken is not None:
            self._target[:] = self._taken


@final
class SimStream:
    """A queue of work."""

    def __init__(self) -> None:
        """Begin empty."""
        self.queue: deque[_Work] = deque()

    def record(self, event: Event) -> None:
        """Reach the event when its turn comes."""
        record = _sim_event(event).latest = _Record()
        self.queue.append(_Work((record.reached,)))

    def wait(self, event: Event) -> None:
        """Hold what follows until this record of the event is reached."""
        self.queue.append(_Work((), after=_sim_event(event).latest))

    def submit(self, pieces: Sequence[Piece]) -> None:
        """Do these pieces, one after the other, at times of the device's choice."""
        self.queue.append(_Work(pieces))

    def ready(self) -> bool:
        """Whether a turn would do something; passed waits are dropped."""
        while self.queue:
            head = self.queue[0]
            if head.after is not None and not head.after.done:
                return False
            if head.pieces:
                return True
            self.queue.popleft()
        return False

    def turn(self, pieces: int) -> None:
        """Do up to so many pieces of the first work."""
        head = self.queue[0].pieces
        for _ in range(min(pieces, len(head))):
            head.popleft()()


@final
class SimDevice:
    """Host memory with streams; ``advance`` gives the turns."""

    def __init__(self, random: Random) -> None:
        """Begin with the compute stream alone."""
        self._random = random
        self._compute = SimStream()
        self._streams = [self._compute]
        self._weights: list[float] = []
        self._until_redraw = 0
        self._loose: list[_Chunk] = []

    @property
    def compute_stream(self) -> SimStream:
        """Where a test submits the steps of its engine."""
        return self._compute

    def new_stream(self) -> SimStream:
        """A side stream."""
        stream = SimStream()
        self._streams.append(stream)
        self._until_redraw = 0
        return stream

    def new_event(self) -> SimEvent:
        """An event that was never recorded."""
        return SimEvent()

    def page_shape(self, pages: HostPages) -> tuple[int, int]:
        """Number of pages, and bytes of one."""
        return int(pages.shape[0]), int(pages.shape[1])

    def copy_to_host(self, stream: Stream, copies: Sequence[PageCopy[HostPages]], order: SourceOrder) -> None:
        """Copy out of pages."""
        check_host_copies(copies)
        self._copy(stream, [(page, place) for copy in copies for page, place in _pairs(copy)], order)

    def copy_to_device(self, stream: Stream, copies: Sequence[PageCopy[HostPages]], order: SourceOrder) -> None:
        """Copy into pages."""
        check_host_copies(copies)
        self._copy(stream, [(place, page) for copy in copies for page, place in _pairs(copy)], order)

    def register_host(self, memory: ByteArray, unit_bytes: int) -> None:
        """Nothing is pinned."""

    def unregister_host(self, memory: ByteArray) -> None:
        """Nothing was pinned."""

    def advance(self, turns: int) -> None:
        """Give so many turns."""
        for _ in range(turns):
            self._read_early()
            if self._until_redraw == 0:
                # A power of a random number: mostly one stream far ahead of the rest, now and then equal ones.
                self._weights = [self._random.random() ** 6 + 1e-6 for _ in self._streams]
                self._until_redraw = self._random.randint(1, _REDRAW_TURNS)
            self._until_redraw -= 1
            ready = [index for index, stream in enumerate(self._streams) if stream.ready()]
            if not ready:
                return
            (index,) = self._random.choices(ready, [self._weights[index] for index in ready])
            self._streams[index].turn(self._random.choice((1, 1, 2, 5, 20)))

    def synchronize(self) -> None:
        """Give turns until nothing is left."""
        while any(stream.ready() for stream in self._streams):
            self.advance(16)

    def close(self) -> None:
        """Do what was submitted."""
        self.synchronize()

    def _copy(self, stream: Stream, moves: Sequence[tuple[ByteArray, ByteArray]], order: SourceOrder) -> None:
        if not isinstance(stream, SimStream):
            raise UnsupportedOperationError("a stream of another device", stream=type(stream).__name__)
        chunks = [
            _Chunk(source[start : start + _CHUNK_BYTES], target[start : start + _CHUNK_BYTES])
            for source, target in moves
            for start in range(0, len(source), _CHUNK_BYTES)
        ]
        self._random.shuffle(chunks)
        if order is SourceOrder.ANY:
            self._loose += chunks
        stream.submit([chunk.move for chunk in chunks])

    def _read_early(self) -> None:
        if self._loose and self._random.random() < 0.5:
            for chunk in self._random.sample(self._loose, self._random.randint(1, len(self._loose))):
                chunk.read()
                self._loose.remove(chunk)


def _pairs(copy: PageCopy[HostPages]) -> list[tuple[ByteArray, ByteArray]]:
    return [(copy.pages[index], place) for place, index in zip(copy.host, copy.indexes, strict=True)]


def _sim_event(event: Event) -> SimEvent:
    if not isinstance(event, SimEvent):
        raise UnsupportedOperationError("an event of another device", event=type(event).__name__)
    return event
