"""The remote tier put together: one object that owns clients, thread, arena and tasks of this process.

Clients and ports are given from outside, so tests run the same service on fakes.
Threading: one event loop and the copy thread.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from blockyard.core.clock import Clock
from blockyard.core.vocabulary import Epoch
from blockyard.runtime.http import Health
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.spans import NO_TRACER, Tracer
from blockyard.runtime.telemetry import Metrics, Server
from blockyard.tiers.breaker import Breaker, BreakerState
from blockyard.tiers.bucket_admin import BucketAdmin, S3BucketAdmin
from blockyard.tiers.object_store import ObjectStore, S3ObjectStore, StoreCredentials, StoreEndpoint
from blockyard.tiers.prefix_index import PrefixIndex
from blockyard.tiers.redis_index import RedisIndex
from blockyard_remote_tier.arena_lease import ArenaLease, CopyThread
from blockyard_remote_tier.executor import RemoteExecutor
from blockyard_remote_tier.finder import Finder
from blockyard_remote_tier.guarded_index import GuardedIndex
from blockyard_remote_tier.guarded_store import GuardedStore
from blockyard_remote_tier.index_repair import IndexRepair
from blockyard_remote_tier.index_writes import IndexWrites
from blockyard_remote_tier.open_store import OpenStore
from blockyard_remote_tier.pack_reader import PackReader
from blockyard_remote_tier.pack_register import PackRegister
from blockyard_remote_tier.pack_writer import PackWriter
from blockyard_remote_tier.server_meter import ServerMeter
from blockyard_remote_tier.traced_store import TracedStore
from blockyard_remote_tier.upkeep import Upkeep

_CONTROL_REQUESTS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePorts:
    """The servers behind this worker."""

    store: ObjectStore
    admin: BucketAdmin
    index: PrefixIndex


def real_ports(settings: NodeSettings, clock: Clock) -> RemotePorts:
    """Clients for the servers that the settings name; nothing is sent yet."""
    endpoint = StoreEndpoint(
        url=settings.g4.endpoint_url,
        region=settings.g4.region,
        bucket=settings.g4.bucket,
        timeout_seconds=settings.g4.request_timeout_seconds,
        max_requests=settings.g4.max_requests,
    )
    credentials = StoreCredentials(
        access_key=settings.g4.access_key.get_secret_value(), secret_key=settings.g4.secret_key.get_secret_value()
    )
    index = RedisIndex(
        settings.redis.url.get_secret_value(),
        timeout_seconds=settings.redis.timeout_seconds,
        entry_ttl_seconds=settings.redis.entry_ttl_seconds,
        clock=clock,
    )
    return RemotePorts(
        store=S3ObjectStore(endpoint, credentials), admin=S3BucketAdmin(endpoint, credentials), index=index
    )


class RemoteTier:
    """All parts of the service; ``close`` when the worker server has stopped."""

    def __init__(
        self,
        settings: NodeSettings,
        ports: RemotePorts,
        *,
        worker_epoch: Epoch,
        clock: Clock,
        health: Health,
        metrics: Metrics,
        attached: Callable[[], bool],
        tracer: Tracer = NO_TRACER,
    ) -> None:
        """Wire the parts; nothing is sent before ``upkeep.run`` or a request."""
        g4 = settings.g4
        breaker, store_meter = Breaker(Server.S3, clock), ServerMeter(Server.S3, metrics, clock)
        # Loads never wait behind stores, and small questions never behind payload.
        reads = GuardedStore(ports.store, breaker, store_meter, g4.max_requests)
        puts = GuardedStore(ports.store, breaker, store_meter, g4.max_requests)
        control = GuardedStore(ports.store, breaker, store_meter, _CONTROL_REQUESTS)
        self._index = GuardedIndex(ports.index, Breaker(Server.REDIS, clock), ServerMeter(Server.REDIS, metrics, clock))
        self._copies = CopyThread()
        self._arenas = ArenaLease()
        self._register = PackRegister()
        self.opened = OpenStore(control, ports.admin, g4.prefix, int(g4.target_bytes))
        self.writes = IndexWrites(self._index, metrics.dropped.labels("index_write").inc)
        repair = IndexRepair(reads, ports.admin, self._index, g4.prefix)
        self.upkeep = Upkeep(
            self.opened,
            self._index,
            self.writes,
            repair,
            settings=settings,
            health=health,
            metrics=metrics,
            attached=None if g4.standalone else attached,
        )
        self.executor = RemoteExecutor(
            self._arenas,
            self._copies,
            self.opened,
            self._writer(TracedStore(puts, tracer), settings, metrics, worker_epoch, clock),
            self._reader(TracedStore(reads, tracer), settings, metrics, worker_epoch),
            # Not while it is being probed: the upkeep does that, at nobody's cost.
            self._finder(metrics, tracer, random.Random(worker_epoch), lambda: breaker.state is BreakerState.CLOSED),
            attached=self.upkeep.poke,
            standalone=g4.standalone,
        )

    def _writer(
        self, store: ObjectStore, settings: NodeSettings, metrics: Metrics, worker_epoch: Epoch, clock: Clock
    ) -> PackWriter:
        return PackWriter(
            store,
            self.writes,
            self._register,
            self._copies,
            metrics=metrics,
            worker_epoch=worker_epoch,
            clock=clock,
            verify=not settings.unsafe.skip_verification,
        )

    def _reader(self, store: ObjectStore, settings: NodeSettings, metrics: Metrics, worker_epoch: Epoch) -> PackReader:
        return PackReader(
            store,
            self.opened,
            self.writes,
            self._register,
            self._copies,
            metrics=metrics,
            worker_epoch=worker_epoch,
            max_packs=settings.g4.max_requests,
            verify=not settings.unsafe.skip_verification,
        )

    def _finder(self, metrics: Metrics, tracer: Tracer, chance: random.Random, readable: Callable[[], bool]) -> Finder:
        return Finder(
            self._index,
            self.opened,
            self.writes,
            self._register,
            metrics=metrics,
            tracer=tracer,
            incomplete=self.upkeep.poke,
            readable=readable,
            chance=chance,
        )

    async def close(self) -> None:
        """End thread and connections and unmap the arena."""
        self._copies.close()
        self._arenas.close()
        await self._index.close()
