"""What the scheduler half says to the node about slots that its ranks copy, and what it hears (executor ``engine``).

``SlotOrders`` is what the scheduler half knows of it; ``ThreadedSlots`` is the real one, in the client's thread.
Invariants: every call returns at once; every ``reserve`` and every ``stage`` is answered by exactly one piece of news.
What was granted over one connection is not committed over another: numbers of grants mean nothing there.
Threading: as ``node_calls``.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, final

from blockyard.connectors.slot_calls import SlotCalls, StagedLoad, StoreGrant
from blockyard.connectors.vllm.rows import Rows
from blockyard.core.engine_names import EngineNames
from blockyard.core.errors import RequestError, UnavailableError
from blockyard.core.vocabulary import BlockId, LoadId, RequestId

_log: Final = logging.getLogger(__name__)


# --- news ---------------------------------------------------------------------------------------------------------
@final
@dataclass(frozen=True, slots=True)
class SlotsGranted:
    """Slots that the ranks may write, perhaps none."""

    life: int
    """Connection over which they were granted."""
    grant: StoreGrant


@final
@dataclass(frozen=True, slots=True)
class LoadStaged:
    """Where the rows of a load lie, one part per ``Rows`` of its order; None for parts that are nowhere."""

    load: int
    life: int
    """Connection over which they were staged."""
    parts: tuple[StagedLoad | None, ...]


SlotNews = SlotsGranted | LoadStaged


class SlotOrders(Protocol):
    """Slots of a node, without waiting."""

    def reserve(self, count: int) -> None:
        """Ask for slots; ``SlotsGranted`` follows."""
        ...

    def commit(self, life: int, grant: int, slots: Sequence[BlockId], rows: Rows, shards: int) -> None:
        """These shards of the rows, which have no pages here, are written in these slots."""
        ...

    def abort(self, life: int, grant: int, slots: Sequence[BlockId]) -> None:
        """Give slots back that no rank writes any more."""
        ...

    def stage(self, load: int, request: str, rows: Sequence[Rows], ttl_seconds: float) -> None:
        """Have rows brought into slots and kept there; ``LoadStaged`` follows."""
        ...

    def close_loads(self, life: int, loads: Sequence[LoadId]) -> None:
        """No rank reads the slots of these staged loads any more."""
        ...


@final
class ThreadedSlots:
    """Orders through a client in a thread of its own."""

    def __init__(
        self,
        post: Callable[[Callable[[SlotCalls], Awaitable[None]]], None],
        names: EngineNames,
        tell: Callable[[SlotNews], None],
        life: Callable[[], int],
    ) -> None:
        """Have calls made by ``post``, which names the connection ``life``, and their news told to ``tell``."""
        self._post = post
        self._names = names
        self._tell = tell
        self._life = life
        self._refusals = 0

    def reserve(self, count: int) -> None:
        """See ``SlotOrders``."""

        async def call(client: SlotCalls) -> None:
            life, grant = self._life(), StoreGrant(0, (), ())
            try:
                grant = await client.reserve_store(count)
            finally:
                self._tell(SlotsGranted(life, grant))

        self._post(call)

    def commit(self, life: int, grant: int, slots: Sequence[BlockId], rows: Rows, shards: int) -> None:
        """See ``SlotOrders``."""

        async def call(client: SlotCalls) -> None:
            if life == self._life():
                run = self._names.run(rows.hashes, rows.first_row)
                with suppress(RequestError):  # the grant has ended with a rank, which is a miss later on
                    await client.commit_store(grant, slots, run, group=rows.group, shards=shards)

        self._post(call)

    def abort(self, life: int, grant: int, slots: Sequence[BlockId]) -> None:
        """See ``SlotOrders``."""

        async def call(client: SlotCalls) -> None:
            if life == self._life():
                with suppress(RequestError):  # the grant has ended with a rank, and its slots with it
                    await client.abort_store(grant, slots)

        self._post(call)

    def stage(self, load: int, request: str, rows: Sequence[Rows], ttl_seconds: float) -> None:
        """See ``SlotOrders``."""

        async def call(client: SlotCalls) -> None:
            life = self._life()
            parts = await asyncio.gather(*(self._stage(client, request, part, ttl_seconds) for part in rows))
            self._tell(LoadStaged(load, life, tuple(parts)))

        self._post(call)

    def close_loads(self, life: int, loads: Sequence[LoadId]) -> None:
        """See ``SlotOrders``."""

        async def call(client: SlotCalls) -> None:
            for load in loads:
                if life == self._life():
                    await client.close_load(load)

        self._post(call)

    async def _stage(self, client: SlotCalls, request: str, rows: Rows, ttl_seconds: float) -> StagedLoad | None:
        try:
            run = self._names.run(rows.hashes, rows.first_row)
            return await client.stage_load(RequestId(request), run, group=rows.group, ttl_seconds=ttl_seconds)
        except UnavailableError:
            return None  # the connection reports itself
        # Whatever it was: the request has to hear of an end, and is computed.
        except Exception as error:  # noqa: BLE001
            self._refusals += 1
            _log.log(logging.WARNING if self._refusals == 1 else logging.DEBUG, "a load becomes a miss", exc_info=error)
            return None
