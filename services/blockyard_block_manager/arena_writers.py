"""What ends when a rank that may write the arena goes, and what is free again when it certainly writes no more.

::

    session, rank or arena lost ──► grants and staged loads of the engine end ──► slots and pins wait for its ranks
    rank attached anew │ proven dead │ arena replaced ──► what waited for it alone is free

Ranks that something waits for and that are still connected are to be disconnected: they attach anew once their copies
are over. Nothing is granted while a writer of an earlier life of the block-manager is neither attached nor dead.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Iterable
from typing import Final, final

from blockyard.core.arena_writers import AttachmentId, RankProcess, Writer
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.recovery import Recovery
from blockyard_block_manager.staged_loads import StagedLoads
from blockyard_block_manager.store_grants import EngineGrants


@final
class RankWriters:
    """Grants, staged loads and writers together."""

    def __init__(self, grants: EngineGrants, staged: StagedLoads, recovery: Recovery) -> None:
        """Gate the grants of the node by ``recovery``."""
        self.writers: Final = grants.writers
        self.grants: Final = grants
        self.staged: Final = staged
        self._recovery = recovery

    @property
    def awaited(self) -> frozenset[AttachmentId]:
        """Attachments whose end somebody waits for."""
        return self.grants.awaited | self.staged.awaited

    @property
    def overdue(self) -> tuple[Writer, ...]:
        """Writers for which the arena is to be given up."""
        return self.writers.overdue(self.awaited)

    def inherit(self, process: RankProcess) -> None:
        """An earlier life of the block-manager gave this process the arena."""
        self.writers.inherit(process)
        self._recovery.engine_writers(inherited=True)

    def attach(self, process: RankProcess) -> AttachmentId:
        """A process has the arena from now on, and nothing that it was told before is under way there."""
        attachment, ended = self.writers.attach(process)
        self._ended(writer.attachment for writer in ended)
        return attachment

    def lost(self, session: EngineSession) -> None:
        """A session or one of its ranks is gone: what its ranks may write and read waits for them."""
        waits_for = [writer.attachment for writer in self.writers.of(session.engine, session.dp_rank)]
        self.grants.end(session, waits_for)
        self.staged.end(session, waits_for)

    def detach(self, attachment: AttachmentId) -> bool:
        """The connection of a writer ended; true where nothing waits for it, so that it need not be remembered."""
        self.writers.detach(attachment)
        if attachment in self.awaited:
            return False
        return self.writers.end(attachment)

    def dead(self, process: RankProcess) -> None:
        """A process is proven dead."""
        ended = [writer.attachment for writer in self.writers if writer.process == process]
        for attachment in ended:
            self.writers.end(attachment)
        self._ended(ended)

    def arena_replaced(self) -> tuple[Writer, ...]:
        """What all writers have is no arena of this node any more; returns them."""
        ended = self.writers.arena_replaced()
        self.grants.close()
        self.staged.arena_replaced()
        self._ended(writer.attachment for writer in ended)
        return ended

    def _ended(self, attachments: Iterable[AttachmentId]) -> None:
        ended = list(attachments)
        self.grants.ended(ended)
        self.staged.ended(ended)
        self._recovery.engine_writers(inherited=bool(self.writers.inherited))
