"""A stack that is up already, as the venue of a proof run.

Invariants: nothing is made or removed; what the run kills or damages stays so. Nothing is begun on a stack that has
worked before or whose sizes do not fit.
Threading: one event loop, in the main thread.
"""

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, Self, final

import httpx

from blockyard.cli.compose.command import ComposeCommand
from blockyard.cli.compose.fitness import require_fitting, require_fresh
from blockyard.cli.compose.node import ComposeNode
from blockyard.cli.compose.project import ComposeProject
from blockyard.cli.demo_plan import DemoPlan
from blockyard.cli.together import together
from blockyard.cli.venue import VenueKind
from blockyard.core.errors import ProcessEndedError, ServerStartError
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import G4Section

NODE_NAMES: Final = ("a", "b")
_HTTP_TIMEOUT_SECONDS: Final = 2.0
_CHECK_SECONDS: Final = 5.0
"""How often containers are looked at: each time takes a part of a second of a processor."""


@final
class ComposeStack:
    """Two nodes and their servers in containers; use as an async context manager."""

    kind: Final = VenueKind.COMPOSE

    def __init__(self, command: ComposeCommand, plan: DemoPlan, say: Callable[[str], None]) -> None:
        """Look at nothing yet; ``say`` is told what is waited for."""
        self.nodes: tuple[ComposeNode, ...] = ()
        self.http = httpx.AsyncClient(timeout=_HTTP_TIMEOUT_SECONDS, trust_env=False)
        self._command = command
        self._plan = plan
        self._say = say
        self._expected: set[str] = set()
        self._checked = time.monotonic()
        self._store = G4Section()
        self._project: ComposeProject | None = None
        self._exits = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """See that everything runs, is ready, fresh, and fits.

        Raises:
            ConfigurationError: the compose files lack something, or have sizes that do not fit.
            ServerStartError: something does not run or does not get ready.
            StackNotFreshError: blocks are there already, or an engine has served requests.
            ComposeError: a command failed.
        """
        try:
            self._exits.push_async_callback(self.http.aclose)
            project = await ComposeProject.read(self._command)
            self.nodes = tuple(ComposeNode(name, project, self._expected) for name in NODE_NAMES)
            await self._require_running(project)
            for node in self.nodes:
                await node.find()
            await together(*(node.wait_ready(self.http, self._say) for node in self.nodes))
            self._store = await _store_of(project, self.nodes[1])
            await require_fitting(self._plan, self.http, self.nodes)
            for node in self.nodes:
                await node.connect_engine()
                if node.engine is not None:
                    self._exits.callback(node.engine.close)
            await require_fresh(self.http, self.nodes, self._store)
        except BaseException:
            await self._exits.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Let go; the stack stays as it is."""
        await self._exits.aclose()

    @property
    def place(self) -> str:
        """The project."""
        return f"compose project {'' if self._project is None else self._project.name}"

    def object_store(self) -> G4Section:
        """The object store at its published port."""
        return self._store

    async def disk_bytes(self) -> int:
        """Slab files of both nodes and objects in the store."""
        # Loaded here, because its client library takes long to load: the start would wait for it.
        from blockyard.cli.pack_damage import PackVandal

        slabs = [await node.slab_bytes() for node in self.nodes]
        return sum(slabs) + await PackVandal(self._store).stored_bytes()

    async def check(self) -> None:
        """Look now and then whether all containers run that should.

        Raises:
            ProcessEndedError: one does not.
        """
        if self._project is None or time.monotonic() - self._checked < _CHECK_SECONDS:
            return
        self._checked = time.monotonic()
        expected = set(self._expected)
        states = await self._project.states()
        for service in sorted(expected & self._expected):
            state = states.get(service)
            if state is None or not state.running:
                text = "is gone" if state is None else state.text
                log = await self._project.log_tail(service)
                raise ProcessEndedError(f"{service}: {text}; end of its log:\n{log}", service=service)

    async def _require_running(self, project: ComposeProject) -> None:
        nodes = [service for node in self.nodes for service in (*node.services, node.engine_service)]
        project.require(*nodes)
        needed = project.with_dependencies(nodes)
        states = await project.states()
        if missing := sorted(service for service in needed if service not in states or not states[service].running):
            start = project.command.line("up", "--detach", "--wait")
            raise ServerStartError(f"not all of the stack runs; start it with: {start}", missing=" ".join(missing))
        self.expect(project, needed)

    def expect(self, project: ComposeProject, services: set[str]) -> None:
        """From now on these services should run."""
        self._project = project
        self._expected.update(services)


async def _store_of(project: ComposeProject, node: ComposeNode) -> G4Section:
    """How the object store of a node is reached from here."""
    inside = project.settings(f"{ServiceName.REMOTE_TIER}-{node.name}").g4
    return inside.model_copy(update={"endpoint_url": await project.reachable(inside.endpoint_url)})
