"""An engine as a simulated process, whose memory the offload-worker copies: it computes, loads, reuses, and dies.

It talks over one stream to the block-manager, which is its session. Pages of a load stay untouched until the load is
answered; those of a load whose session ended are never used again in this life.
Threading: one thread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.property.node_sim.manager import SimManager

from blockyard.core.block_name import names_of
from blockyard.core.chain_run import ChainRun
from blockyard.core.events import BlockScope
from blockyard.core.identity import ModelIdentity
from blockyard.core.onboard_plan import LoadOutcome
from blockyard.core.vocabulary import EngineBlockId, GroupId, Guard, ItemStatus, LoadId, RequestId
from blockyard.testing.blocks import chain
from blockyard.testing.fake_slots import FakeEngineMemory, payload_of
from blockyard.testing.sim.ports import StreamPort
from blockyard.testing.sim.world import Process, SimWorld
from blockyard.testing.sim.write_oracle import BrokenRuleError
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.connector_channel import Group, Hello
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.g1_set import G1Row
from blockyard_block_manager.node_core import NodeCore

Request = Callable[[NodeCore], object]
BLOCK_BYTES: Final = 4_096
BLOCK_TOKENS: Final = 16
GROUPS: Final = (GroupId(0),)
MODEL: Final = ModelIdentity(model="test", block_bytes=BLOCK_BYTES, block_tokens=BLOCK_TOKENS)
SCOPE: Final = BlockScope(MODEL.digest(), block_tokens=BLOCK_TOKENS)
PAGES: Final = 24
CHAINS: Final = [chain(name, 6) for name in "abc"]
LEASE_MS: Final = 1_000
_PAUSE_SECONDS: Final = 0.1
_HELLO_SECONDS: Final = 0.3


@dataclass(slots=True)
class OpenLoad:
    """A load that the engine waits for."""

    run: ChainRun
    first: int
    load: LoadId | None = None


class SimEngine(Process):
    """One engine with memory of its own."""

    def __init__(self, world: SimWorld, manager: SimManager, name: str = "engine") -> None:
        """Prepare."""
        super().__init__(world, name)
        self.manager: Final = manager
        self.memory: FakeEngineMemory
        self.active = True
        """Whether it begins anything new."""
        self.answers = 0
        self._stream: StreamPort
        self._session: EngineSession | None
        self._rows: dict[int, G1Row]
        self._loads: list[OpenLoad]
        self._lost: set[int]
        manager.on_death.append(self._manager_died)

    # --- lives --------------------------------------------------------------------------------------------------------
    def started(self) -> None:
        """Empty memory, and no session."""
        self.memory = FakeEngineMemory.of(PAGES)
        self._rows, self._loads, self._lost = {}, [], set()
        self._session = None
        self._stream = StreamPort(self.world)
        self._say_hello()
        self.after(_PAUSE_SECONDS, self._act)

    def died(self) -> None:
        """The kernel closes its socket, which the block-manager sees."""
        self._stream.close()
        session = self._session
        if session is not None:
            self._tell_manager_of_end(session)

    def _tell_manager_of_end(self, session: EngineSession) -> None:
        manager, life = self.manager, self.manager.life

        def ended() -> None:
            if manager.life == life:
                manager.core.close_session(session)
                manager.pump()

        self.world.after(0.001, lambda: manager.run(ended))

    def _manager_died(self) -> None:
        """The stream has ended: what was asked over it is answered by nobody."""
        if not self.alive:
            return
        self._stream.close()

        def seen() -> None:
            if not self._stream.open:
                self._end_session()

        self.world.after(0.001, lambda: self.run(seen))

    def _end_session(self) -> None:
        for load in self._loads:
            self._lost.update(range(load.first, load.first + len(load.run)))
        self._loads.clear()
        self._session = None

    def _say_hello(self) -> None:
        if self._session is None and self.manager.alive:
            self._stream.close()
            self._stream = stream = StreamPort(self.world)
            memory, manager = self.memory, self.manager
            hello = Hello(
                version=PROTOCOL_VERSION,
                engine=self.name,
                identity=MODEL,
                blocks=PAGES,
                groups=(Group(engine_block_tokens=BLOCK_TOKENS),),
            )

            def arrives() -> None:
                session = manager.open_engine(hello, memory)
                stream.send(self, lambda: self._welcome(session))

            stream.send(manager, arrives)
        self.after(_HELLO_SECONDS, self._say_hello)

    def _welcome(self, session: EngineSession) -> None:
        self._session = session
        rows = list(self._rows.values())
        if rows:
            self._send(lambda core: core.register(session, rows))

    # --- what it does -------------------------------------------------------------------------------------------------
    def _act(self) -> None:
        chance = self.world.random
        if self._session is not None and self.active:
            choices = [self._compute, self._compute, self._load, self._load, self._reuse, self._reserve, self._release]
            chance.choice([*choices, self._close_load])(self._session)
        self.after(chance.uniform(0.0, 2 * _PAUSE_SECONDS), self._act)

    def _send(self, request: Request) -> None:
        manager, session = self.manager, self._session

        def arrives() -> None:
            if session is not None and not session.closed:
                request(manager.core)
                manager.pump()

        self._stream.send(manager, arrives)

    def _part(self) -> ChainRun:
        return self.world.random.choice(CHAINS).slice(0, self.world.random.randint(1, 6))

    def _place(self, pages: int) -> int | None:
        busy = set(self._lost)
        for load in self._loads:
            busy.update(range(load.first, load.first + len(load.run)))
        places = [first for first in range(PAGES - pages) if busy.isdisjoint(range(first, first + pages))]
        return self.world.random.choice(places) if places else None

    def _compute(self, session: EngineSession) -> None:
        run = self._part()
        first = self._place(len(run))
        if first is None:
            return
        rows: list[G1Row] = []
        for index, name in enumerate(names_of(run)):
            page = EngineBlockId(first + index)
            guard = self.memory.fill(page, name.digest)
            rows.append(G1Row((page,), (Guard(guard),), name, SCOPE))
        self._rows.update((row.pages[0], row) for row in rows)
        self._send(lambda core: core.register(session, rows))

    def _reuse(self, session: EngineSession) -> None:
        first = self._place(1)
        if first is None:
            return
        self._give_up(range(first, first + 1))
        if self.world.random.random() < 0.7:
            self._send(lambda core: core.deregister(session, [EngineBlockId(first)]))

    def _give_up(self, pages: range) -> None:
        for page in pages:
            self.memory.guards[page] += 1
            self.memory.blocks[page] = b"something else"
            self._rows.pop(page, None)

    def _load(self, session: EngineSession) -> None:
        run = self._part()
        first = self._place(len(run))
        if first is None:
            return
        pages = [EngineBlockId(first + index) for index in range(len(run))]
        self._give_up(range(first, first + len(run)))
        guards = [Guard(self.memory.guards[page]) for page in pages]
        opened = OpenLoad(run, first)
        self._loads.append(opened)
        ttl_ms = self.world.random.choice((50, 500, 3_000))
        request = self._request()
        stream = self._stream

        def finished(load: LoadId, outcome: LoadOutcome) -> None:
            stream.send(self, lambda: self._answered(opened, outcome))

        def ask(core: NodeCore) -> None:
            names = names_of(run)
            core.deregister(session, pages)
            opened.load = core.open_load(session, request, SCOPE, names, pages, guards, ttl_ms, finished)

        self._send(ask)

    def _answered(self, opened: OpenLoad, outcome: LoadOutcome) -> None:
        if opened not in self._loads:
            raise BrokenRuleError("I8: a load is answered twice, or after its session")
        self._loads.remove(opened)
        self.answers += 1
        for index, status in enumerate(outcome.status):
            page, digest = opened.first + index, opened.run.digest(index)
            if status is ItemStatus.OK and self.memory.blocks[page] != payload_of(digest):
                raise BrokenRuleError(f"I1: page {page} does not hold what it was answered to hold")

    def _close_load(self, session: EngineSession) -> None:
        load = self._loads[0].load if self._loads else None
        if load is not None:
            self._send(lambda core: core.close_load(session, load))

    def _reserve(self, session: EngineSession) -> None:
        names, request = names_of(self._part()), self._request()
        self._send(lambda core: core.reserve(session, request, names, GROUPS, LEASE_MS))

    def _release(self, session: EngineSession) -> None:
        request = self._request()
        self._send(lambda core: core.release(session, request))

    def _request(self) -> RequestId:
        return RequestId(f"r{self.world.random.randint(0, 2)}")

    @property
    def waiting(self) -> int:
        """Loads that were not answered."""
        return len(self._loads)
