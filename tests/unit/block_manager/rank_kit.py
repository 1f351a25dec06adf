"""An engine whose ranks copy, in a world without processes: the ranks are facts, their writes and reads plain steps.

``Ranks.seen`` is what a rank finds in a slot, whether it may still look there or not: wrong bytes show as such.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tests.unit.block_manager.world import MODEL, OW, RT, Engine, World

from blockyard.core.arena_writers import AttachmentId, RankId, RankProcess
from blockyard.core.block_name import names_of
from blockyard.core.chain_run import ChainRun
from blockyard.core.store_grants import GrantedSlots
from blockyard.core.vocabulary import BlockId, EngineId, LoadId, RequestId, Tier
from blockyard.testing.fake_slots import FakeTier, payload_of
from blockyard_block_manager.arena_writers import RankWriters


@dataclass
class Ranks:
    """One engine of several ranks, its session and its rank processes."""

    world: World
    engine: Engine
    attachments: dict[int, AttachmentId] = field(default_factory=dict)
    started: int = 100

    # --- lives --------------------------------------------------------------------------------------------------------
    def process(self, rank: int, *, started: int | None = None) -> RankProcess:
        """Facts of the process of a rank; another start is another process."""
        pid = 1_000 + rank
        return RankProcess(
            RankId(EngineId(self.engine.name), 0, rank), pid, self.started if started is None else started, "boot", 1
        )

    def attach(self, rank: int, *, started: int | None = None) -> None:
        """The process of a rank attaches: nothing that it was told before is under way."""
        process = self.process(rank, started=started)
        self.attachments[rank] = self.world.core.decide(lambda ranks: ranks.attach(process))
        self.world.core.ranks_attached(self.engine.session, len(self.attachments))

    def lose(self, rank: int) -> None:
        """The connection of a rank ends, and so do those of the others where something waits for them."""
        attachment = self.attachments.pop(rank)
        self.world.core.ranks_attached(self.engine.session, len(self.attachments))
        self.world.core.decide(lambda ranks: ranks.detach(attachment))
        for other, waited in list(self.attachments.items()):
            if waited in self.world.core.ranks.awaited:
                self.lose(other)

    def end_session(self) -> None:
        """The connection of the engine ends; ranks that something waits for are disconnected."""
        self.world.core.close_session(self.engine.session)
        for rank, attachment in list(self.attachments.items()):
            if attachment in self.world.core.ranks.awaited:
                del self.attachments[rank]
                self.world.core.decide(partial(RankWriters.detach, attachment=attachment))

    def die(self, rank: int, *, started: int | None = None) -> None:
        """A process is proven dead."""
        process = self.process(rank, started=started)
        self.world.core.decide(lambda ranks: ranks.dead(process))

    # --- stores -------------------------------------------------------------------------------------------------------
    def reserve(self, count: int) -> GrantedSlots:
        """Ask for slots."""
        session = self.engine.session
        return self.world.core.decide(lambda ranks: ranks.grants.reserve(session, count))

    def write(self, granted: GrantedSlots, run: ChainRun) -> None:
        """Ranks write the rows of a run into granted slots."""
        for slot, generation, digest in zip(granted.slots, granted.generations, digests(run), strict=True):
            self.world.tiers[Tier.G2].slots[slot].rank_writes(generation, payload_of(digest))

    def commit(self, granted: GrantedSlots, run: ChainRun, shards: int = 0b11) -> None:
        """The copies of these shards have ended."""
        session, scope, names = self.engine.session, self.engine.scope(), names_of(run)
        self.world.core.decide(
            lambda ranks: ranks.grants.commit(session, granted.grant, granted.slots, scope, names, shards)
        )

    def store(self, run: ChainRun) -> None:
        """Everything from the grant to the registered rows."""
        granted = self.reserve(len(run))
        assert len(granted.slots) == len(run)
        self.write(granted, run)
        self.commit(granted, run)
        self.world.settle()

    # --- loads --------------------------------------------------------------------------------------------------------
    def stage(self, run: ChainRun, request: str = "r") -> LoadId:
        """Open a load without pages; its outcome lands in ``world.outcomes``."""
        core, session = self.world.core, self.engine.session
        names, scope = names_of(run), self.engine.scope()
        return core.open_load(session, RequestId(request), scope, names, [], [], 10_000, self.world.finished)

    def places(self, load: LoadId) -> list[tuple[BlockId, int]]:
        """Slots of a staged load with their generations, as its ranks are told."""
        slots = self.world.core.ranks.staged.slots(load)
        return [slots[index] for index in sorted(slots)]

    def seen(self, slot: BlockId) -> bytes:
        """What a rank finds in a slot now."""
        return self.world.tiers[Tier.G2].slots[slot].payload

    def close(self, load: LoadId) -> None:
        """No rank reads the slots of a load any more."""
        self.world.core.close_load(self.engine.session, load)


def digests(run: ChainRun) -> list[bytes]:
    """Digests of the rows of a run."""
    return [run.digest(index) for index in range(len(run))]


def ranks_of(world: World, name: str = "e", count: int = 2) -> Ranks:
    """An engine with its ranks attached."""
    model = replace(MODEL, parallel_shape=f"tp{count}")
    engine = world.connect(name, ranks=count, executor="engine", identity=model)
    ranks = Ranks(world, engine)
    world.core.ranks_attached(engine.session, 0)
    for rank in range(count):
        ranks.attach(rank)
    return ranks


def replace_arena(world: World) -> None:
    """The offload-worker comes back with another arena, which it was asked for; a remote-tier keeps the old one."""
    world.lose(OW)
    old = world.tiers[Tier.G2]
    if RT in world.workers:
        world.workers[RT].tiers = dict(world.tiers)
    world.tiers[Tier.G2] = FakeTier.of(f"not {old.name[:8].hex()[:12]}", len(old.slots))
    world.attach(OW)
    if RT not in world.workers:
        world.settle()


def attach_remote_tier(world: World) -> None:
    """The remote-tier attaches anew, and maps the arena of now; what it has under way stays in the old one."""
    world.lose(RT)
    world.workers[RT].tiers = world.tiers
    world.attach(RT)


def same(found: Sequence[bytes], run: ChainRun) -> bool:
    """Whether these are the rows of a run."""
    return list(found) == [payload_of(digest) for digest in digests(run)]
