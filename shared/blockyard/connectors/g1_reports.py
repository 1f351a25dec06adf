"""What the block-manager is told of an engine's G1 set: each change as it happens, all of it after a reconnect.

Invariants: of one memory block the block-manager hears in the order of the calls; what it refused is not announced
again; what it may not have heard of, the next connection announces.
Threading: one event loop; guards may be raised by another thread.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, final

import numpy as np

from blockyard.connectors.call_columns import column, wire_run
from blockyard.connectors.engine_guards import EngineGuards
from blockyard.connectors.g1_set import G1Set, RegisteredRun
from blockyard.connectors.manager_link import PATIENT_SECONDS, ManagerLink
from blockyard.core.errors import BlockyardError, DeadlineExceededError, RequestError, UnavailableError
from blockyard.core.vocabulary import EngineBlockId
from blockyard.wire import connector_channel as channel
from blockyard.wire.codec import MAX_KEYS_PER_CALL
from blockyard.wire.trace_parent import NO_TRACE, TraceParent

_log: Final = logging.getLogger(__name__)


@final
class G1Reports:
    """The G1 set of one engine, as told to its block-manager."""

    def __init__(self, guards: EngineGuards, connected: Callable[[], ManagerLink]) -> None:
        """Begin with an empty set; ``connected`` gives the open connection, or raises ``UnavailableError``."""
        self._guards = guards
        self._connected = connected
        self._set = G1Set()

    def check_unnamed(self, blocks: Sequence[EngineBlockId]) -> None:
        """Refuse blocks that belong to a registered row.

        Raises:
            RequestError: names one.
        """
        if registered := self._set.registered(blocks):
            raise RequestError("deregister a block before something is loaded into it", block=min(registered))

    async def register(self, registered: RegisteredRun, ticket: int, trace: TraceParent) -> None:
        """Rows are complete; raises as ``BlockyardClient.register``."""
        self._set.add(registered)
        try:
            await self._tell(_register_message(registered, ticket), channel.Registered, trace)
        except RequestError:
            self._set.withdraw(registered)
            raise

    async def deregister(self, blocks: Sequence[EngineBlockId]) -> None:
        """Blocks are about to be reused; raises as ``BlockyardClient.deregister``."""
        self._check_raised(blocks)
        self._set.discard(blocks)
        await self._tell(channel.Deregister(blocks=column("I", blocks)), channel.Done)

    async def reset(self) -> None:
        """All blocks are free; raises as ``deregister``."""
        self._check_raised(self._set.blocks())
        self._set.clear()
        await self._tell(channel.Reset(), channel.Done)

    def nobody_knows(self) -> None:
        """A connection begins: ``announce`` tells what is held by now, changes are told beside it."""
        self._set.announce_all()

    async def announce(self, link: ManagerLink) -> None:
        """Tell the whole set."""
        while (registered := self._set.next_run(MAX_KEYS_PER_CALL)) is not None:
            try:
                await link.call(_register_message(registered, 0), channel.Registered, timeout_seconds=PATIENT_SECONDS)
            except UnavailableError:
                link.give_up()  # the next connection announces the whole set
                return
            except BlockyardError as error:
                _log.warning("the block-manager refuses blocks of the engine's set: %s", error)
                self._set.withdraw(registered)

    def _check_raised(self, blocks: Iterable[EngineBlockId]) -> None:
        pages, noted = self._set.noted_guards(blocks)
        unraised = self._guards.values(np.array(pages, np.int64)) == np.array(noted, np.uint64)
        if unraised.any():
            raise RequestError(
                "raise the guard of a block before it is deregistered", block=pages[int(unraised.argmax())]
            )

    async def _tell(
        self,
        message: channel.Request,
        kind: type[channel.Registered] | type[channel.Done],
        trace: TraceParent = NO_TRACE,
    ) -> None:
        """Report a change of the G1 set; where it was not carried out, the next connection announces the whole set."""
        link = self._connected()
        try:
            await link.call(message, kind, trace=trace)
        except DeadlineExceededError:
            raise  # sent, and carried out in its turn
        except UnavailableError:
            link.give_up()
            raise


def _register_message(registered: RegisteredRun, ticket: int) -> channel.Register:
    return channel.Register(
        run=wire_run(registered.run),
        group=registered.group,
        tenant=registered.tenant,
        pages=column("I", registered.pages),
        guards=column("Q", registered.guards),
        ticket=ticket,
    )
