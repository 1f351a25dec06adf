"""Offers of all of G2 to the lower tiers, whenever one becomes usable: to the disk, and to the store what it lacks.

Blocks of a group of which an engine only now says that it has a window are offered to the disk again: they were taken
for blocks of which the parents are missing.

Invariants: what is offered is looked at in parts, so that nobody waits for it; the store is asked before it is given.
Threading: owned by the event loop of the service. No await.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from blockyard.core.block_name import BlockName
from blockyard.core.events import BlockScope
from blockyard.core.vocabulary import Availability, Tier, WorkerRole
from blockyard.tiers.index_value import Locator
from blockyard_block_manager.disk_writer import DiskWriter
from blockyard_block_manager.g2_sweep import G2Sweep
from blockyard_block_manager.job_desk import JobDesk
from blockyard_block_manager.load import SharedIndex
from blockyard_block_manager.node_profile import NodeProfile
from blockyard_block_manager.node_tables import NodeTables
from blockyard_block_manager.pack_writer import PackWriter
from blockyard_block_manager.windowed_groups import WindowedGroup

_RECALL_SECONDS: Final = 5.0


class G2Offers:
    """Sweeps over G2; ``step`` goes on with them."""

    def __init__(
        self,
        profile: NodeProfile,
        tables: NodeTables,
        desk: JobDesk,
        disk: DiskWriter,
        packs: PackWriter,
        index: SharedIndex,
        end_section: Callable[[], None],
    ) -> None:
        """Offer what ``tables`` hold; ``end_section`` is called when an answer of ``index`` has been taken."""
        self._tables = tables
        self._desk = desk
        self._disk = disk
        self._packs = packs
        self._index = index
        self._end_section = end_section
        self._disk_part = max(1, min(profile.listing_part, disk.most_waiting))
        self._to_disk = G2Sweep(tables, self._disk_part, disk.store)
        self._recalls = G2Sweep(tables, profile.listing_part, self._recall)
        self._of_windows = G2Sweep(tables, self._disk_part, self._offer_window)
        self._new_windows: frozenset[WindowedGroup] = frozenset()
        """What ``_of_windows`` is about."""
        self._grants_were_open = False
        self._could_recall = False

    def offer_windows(self, groups: frozenset[WindowedGroup]) -> None:
        """These groups are known to have a window from now on."""
        if groups:
            self._new_windows = groups | self._new_windows if self._of_windows.under_way else groups
            self._of_windows.start()

    def step(self) -> None:
        """Begin what became possible, and go on with what is under way."""
        if self._tables.grants_open and not self._grants_were_open:
            self._to_disk.start()
        self._grants_were_open = self._tables.grants_open
        can_recall = self._tables.serving and self._desk.attached(WorkerRole.REMOTE_TIER)
        could, self._could_recall = self._could_recall, can_recall
        if self._could_recall and not could:
            self._recalls.start()
        elif not self._could_recall:
            self._recalls.stop()
        for sweep in (self._to_disk, self._of_windows):
            if self._disk.has_room(self._disk_part):
                sweep.step()
        self._recalls.step()

    def _offer_window(self, scope: BlockScope, names: Sequence[BlockName]) -> None:
        if (scope.identity, scope.group) in self._new_windows:
            self._disk.offer_again(scope, names)

    def _recall(self, scope: BlockScope, names: Sequence[BlockName]) -> None:
        """Ask which blocks of G2 the store has, before putting the rest."""
        self._index.find(scope, names, _RECALL_SECONDS, partial(self._recalled, scope, names))

    def _recalled(
        self, scope: BlockScope, names: Sequence[BlockName], answers: Sequence[tuple[Availability, Locator | None]]
    ) -> None:
        there = [name for name, (status, _) in zip(names, answers, strict=True) if status is Availability.G4]
        held = self._tables.holds(Tier.G2, [name.key for name in names], scope.group)
        self._packs.read(there, scope)
        self._packs.landed(scope, [name for name, here in zip(names, held, strict=True) if here])
        self._end_section()
