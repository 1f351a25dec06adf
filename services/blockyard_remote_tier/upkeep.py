"""Background care of the remote tier: is everything there, is the index complete, is anything left to write.

::

    every few seconds, or when poked:   is a block-manager attached? -> check `attached`, where this serves a node
                                        ask the store for its marker -> check `s3`
                                        ask the index for its state  -> check `redis`; absent: rebuild from the listing,
                                                                        then make the index writes that wait

A failure of either server leaves the other checks alone; everything recovers by itself at a later round.
Threading: one event loop; one task runs ``run``.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from blockyard.core.errors import BlockyardError, DeadlineExceededError, NotAskedError, UnavailableError
from blockyard.runtime.backoff import Backoff
from blockyard.runtime.http import Health
from blockyard.runtime.logs import get_logger
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.telemetry import Metrics, Server
from blockyard.tiers.prefix_index import IndexMeta, IndexState, PrefixIndex
from blockyard.tiers.store_marker import StoreMarker
from blockyard_remote_tier.complaints import index_complaint, settings_named, store_complaint
from blockyard_remote_tier.index_repair import LEASE_SECONDS, IndexRepair
from blockyard_remote_tier.index_writes import IndexWrites
from blockyard_remote_tier.open_store import OpenStore

_ROUND_SECONDS: Final = 2.0
_PROBE_SECONDS: Final = 2.0
"""The marker is small: a store that takes longer for it is no help to loads."""
SHORTEST_PAUSE_SECONDS: Final = 0.1
_log: Final = get_logger(__name__)


class Upkeep:
    """Keeps checks, index and waiting writes up to date."""

    def __init__(
        self,
        opened: OpenStore,
        index: PrefixIndex,
        writes: IndexWrites,
        repair: IndexRepair,
        *,
        settings: NodeSettings,
        health: Health,
        metrics: Metrics,
        attached: Callable[[], bool] | None,
    ) -> None:
        """Care for these; ``attached`` says whether a block-manager is served, None that none ever is."""
        self._opened = opened
        self._index = index
        self._writes = writes
        self._repair = repair
        self._g4 = settings.g4
        self._redis = settings.redis
        self._health = health
        self._metrics = metrics
        self._checks: tuple[Callable[[], Awaitable[bool]], ...] = (self._check_store, self._check_index)
        self._said: dict[str, str] = {}
        self._builder = secrets.token_bytes(16)
        for check in (Server.REDIS, Server.S3):
            health.set(check, False, "not asked yet")
        if attached is not None:
            self._checks = (lambda: self._check_attached(attached), *self._checks)
            health.set("attached", False, "not asked yet")
        self._poked = tuple(asyncio.Event() for _ in self._checks)

    def poke(self) -> None:
        """Something changed or was found missing: look now."""
        for poked in self._poked:
            poked.set()

    async def run(self) -> None:
        """Look until cancelled; a slow check does not hold up the others."""
        async with asyncio.TaskGroup() as group:
            for check, poked in zip(self._checks, self._poked, strict=True):
                group.create_task(self._repeat(check, poked))

    async def round(self) -> bool:
        """Look once; True where nothing is missing."""
        return all(await asyncio.gather(*(check() for check in self._checks)))

    async def _repeat(self, check: Callable[[], Awaitable[bool]], poked: asyncio.Event) -> None:
        backoff = Backoff(SHORTEST_PAUSE_SECONDS, _ROUND_SECONDS)
        while True:
            poked.clear()
            fine = await check()
            if fine:
                backoff.reset()
            pause = _ROUND_SECONDS if fine else backoff.next_seconds()
            # However often it is poked, a server that lacks something is not asked all the time.
            await asyncio.sleep(SHORTEST_PAUSE_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await poked.wait()

    async def _check_attached(self, attached: Callable[[], bool]) -> bool:
        return self._show("attached", "" if attached() else "no block-manager has attached")

    async def _check_store(self) -> bool:
        known = self._opened.marker is not None
        detail, answered = "", True
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                await self._opened.probe()
            self._opened.check_target()
        except NotAskedError:
            # What it was the last time is more telling.
            detail, answered = self._said.get(Server.S3) or "the object store does not answer", False
        except TimeoutError:
            detail, answered = store_complaint(DeadlineExceededError(), self._g4), False
        except BlockyardError as error:
            detail, answered = store_complaint(error, self._g4), not isinstance(error, UnavailableError)
        if not known and self._opened.marker is not None:
            # The index waited for it.
            self.poke()
        return self._report(Server.S3, detail, answered=answered)

    async def _check_index(self) -> bool:
        try:
            meta = await self._index.meta()
        except NotAskedError:
            detail = self._said.get(Server.REDIS) or "the index does not answer"
            return self._report(Server.REDIS, detail, answered=False)
        except UnavailableError as error:
            return self._report(Server.REDIS, index_complaint(error, self._redis), answered=False)
        try:
            detail = await self._care_for_index(meta, self._opened.marker)
            if not detail:
                await self._writes.flush()
        except BlockyardError as error:
            detail = self._complaint(error)
        return self._report(Server.REDIS, detail, answered=True)

    def _complaint(self, error: BlockyardError) -> str:
        """What kept the index from being looked after: its server, or the store that it is rebuilt from."""
        if isinstance(error, UnavailableError) and error.fields.get("server") == Server.REDIS:
            return index_complaint(error, self._redis)
        return f"the index cannot be rebuilt from the object store: {store_complaint(error, self._g4)}"

    async def _care_for_index(self, meta: IndexMeta, marker: StoreMarker | None) -> str:
        """What is wrong with the index; empty where nothing is."""
        if meta.state is IndexState.FOREIGN:
            return meta.obstacle or "the index was written by another version of Blockyard"
        if marker is None:
            return "" if meta.state is IndexState.READY else "the index waits for the object store"
        if meta.state is IndexState.ABSENT:
            return await self._rebuild(marker)
        if meta.index_id != marker.store_id:
            return "redis.url: the index describes another object store: use another database, or empty this one"
        return "" if meta.state is IndexState.READY else "the index is being rebuilt"

    async def _rebuild(self, marker: StoreMarker) -> str:
        """What prevented it; empty where the index is complete."""
        if not await self._index.begin_build(marker.store_id, self._builder, LEASE_SECONDS):
            return "another process rebuilds the index"
        # It may take long, and what was said before no longer holds.
        self._report(Server.REDIS, "the index is being rebuilt", answered=True)
        report = await self._repair.run(marker.store_id, self._builder)
        if not await self._index.finish_build(marker.store_id, self._builder):
            return "the lease for building the index was lost"
        _log.info("index rebuilt from the store", packs=report.packs, blocks=report.blocks, foreign=report.foreign)
        return ""

    def _report(self, server: Server, detail: str, *, answered: bool) -> bool:
        self._metrics.dependency_up.labels(server).set(answered)
        self._metrics.index_writes_waiting.set(len(self._writes))
        return self._show(server, detail)

    def _show(self, check: str, detail: str) -> bool:
        """Set a check, which holds where ``detail`` is empty; logged where that, or what to correct, changed."""
        holds = not detail
        self._health.set(check, holds, detail)
        before, self._said[check] = self._said.get(check), detail
        if before is None or holds is not (not before) or settings_named(detail) - settings_named(before):
            if holds:
                _log.info("check holds", check=check)
            else:
                _log.warning("check fails", check=check, reason=detail)
        return holds
