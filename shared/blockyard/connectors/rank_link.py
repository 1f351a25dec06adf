"""Connection of one rank to the block-manager: hands over the rank's KV memory, and keeps doing so for ever.

The node counts the connection as the life of the rank: while there is none, it touches no memory of the engine. With
executor ``engine`` the rank keeps its memory and gets the arena instead, which its own copies read and write; the arena
stays mapped while the connection is away, since copies may be under way, and leaves when the node has another one. An
attach says that nothing of before is under way any more: the node gives the slots to others.
Invariants: at most one arena is mapped; ``on_arena`` is told of every change, the loss of the old one first.
Threading: one event loop.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self, final

from blockyard.connectors.manager_connector import ManagerConnector, Works
from blockyard.connectors.manager_link import ManagerLink, Notice
from blockyard.connectors.rank_memory import RankMemory, attach_message
from blockyard.core.kv_groups import Region
from blockyard.core.vocabulary import EngineId
from blockyard.runtime.rpc.frame_buffer import close_descriptors
from blockyard.tiers.arena import Arena
from blockyard.wire import connector_channel as channel
from blockyard.wire.worker_channel import ArenaInfo


async def _nothing_under_way() -> None:
    """A rank whose memory others copy has no copies of its own."""


@final
class RankLink:
    """Attaches one rank, over all lives of its block-manager; use as an async context manager."""

    def __init__(
        self,
        socket: Path,
        engine: EngineId,
        dp_rank: int,
        rank: int,
        memory: RankMemory | None,
        regions: tuple[tuple[Region, ...], ...],
        *,
        life: str = "",
        on_state: Callable[[bool], None] = lambda attached: None,
        on_arena: Callable[[Arena | None], None] = lambda arena: None,
        drained: Callable[[], Awaitable[None]] = _nothing_under_way,
    ) -> None:
        """Prepare.

        Args:
            socket: where the block-manager serves engines.
            engine: name of the engine, as in its hello.
            dp_rank: its data-parallel rank.
            rank: which rank this is, from 0.
            memory: KV memory to hand over; None with executor ``engine``.
            regions: where the pages of each group lie, also where the memory is not handed over.
            life: name of this start of the engine, as in its description.
            on_state: told True after each attach and False after each loss of the connection.
            on_arena: told which arena the rank may copy to and from; None before it is unmapped.
            drained: awaited before each attach, which tells the node that the rank is done with every slot it was told
                of before; returns once no copy of these is under way or will follow.
        """
        memory_bytes = 0 if memory is None else memory.memory_bytes
        self._request = attach_message(engine, dp_rank, rank, memory_bytes, regions, life=life)
        self._fds = () if memory is None else (memory.fd,)
        self._on_arena = on_arena
        self._drained = drained
        self.arena: Arena | None = None
        """What the rank may copy to and from."""
        self._connector = ManagerConnector(
            socket, self._introduce, on_state, self._noticed, who=f"rank {rank} of engine {engine}"
        )

    @property
    def attached(self) -> bool:
        """Whether the block-manager has this rank now."""
        return self._connector.link is not None

    async def wait_attached(self, timeout_seconds: float) -> None:
        """Wait until the block-manager has this rank; raises as ``BlockyardClient.wait_connected``."""
        await self._connector.wait_connected(timeout_seconds)

    async def __aenter__(self) -> Self:
        """Start attaching in the background."""
        self._connector.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the connection: the node is done with this rank's memory. The arena is unmapped."""
        await self._connector.stop()
        self._leave_arena()

    async def _introduce(self, link: ManagerLink) -> Works:
        await self._drained()
        attached, received = await link.introduce(self._request, channel.RankAttached, self._fds)
        self._take_arena(attached.arena, received)
        return ()

    def _take_arena(self, info: ArenaInfo | None, received: list[int]) -> None:
        try:
            if info is None or not received:
                self._leave_arena()
            elif self.arena is None or self.arena.info() != info:
                self._leave_arena()
                self.arena = Arena.adopt(received[0], info)
                received.pop(0)
                self._on_arena(self.arena)
        finally:
            close_descriptors(received)

    def _leave_arena(self) -> None:
        if self.arena is not None:
            arena, self.arena = self.arena, None
            self._on_arena(None)
            arena.close()

    def _noticed(self, push: Notice) -> None:
        if isinstance(push, channel.ArenaReplaced):
            self._leave_arena()
            if self._connector.link is not None:
                self._connector.link.close()  # the next connection brings the new one
