"""A real offload-worker process, and the block-manager's side of its job channel in the hands of a test.

Threading: one event loop, in the main thread (children start from there).
"""

import asyncio
import os
from pathlib import Path
from typing import Final

from blockyard.connectors.engine_memory import EngineMemory
from blockyard.core.errors import UnavailableError
from blockyard.core.vocabulary import Executor, ItemStatus, JobKind, Tier
from blockyard.runtime.node_folder import NodeFolder, ServiceName
from blockyard.runtime.rpc.client import RpcClient
from blockyard.runtime.settings import NodeSettings
from blockyard.testing.job_channel import connect_to_worker, expect
from blockyard.testing.rank_engine import map_fds, map_request
from blockyard.testing.service_process import ServiceProcess
from blockyard.testing.worker_jobs import TEST_EPOCH, Move, transfer_job
from blockyard.tiers.header import InventoryRecord, parse_inventory
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.worker_channel import (
    Accepted,
    Ack,
    ArenaInfo,
    Attach,
    Attached,
    Inventory,
    InventoryPage,
    JobResult,
    Reply,
    Submit,
)

CALL_SECONDS: Final = 5.0
MAPPING: Final = 1


class OffloadWorkerProcess(ServiceProcess):
    """The process under test; started, killed and started again on one node folder."""

    def __init__(self, settings: NodeSettings) -> None:
        """Prepare; nothing runs yet."""
        super().__init__(ServiceName.OFFLOAD_WORKER, settings)

    @property
    def slab(self) -> Path:
        """Its slab file."""
        return NodeFolder.of(self.settings).slabs(self.settings) / "slab-0"


class WorkerDriver:
    """The channel as a block-manager uses it; holds the arena over lives of the worker."""

    def __init__(self, block_bytes: int) -> None:
        """Drive jobs whose payloads have ``block_bytes`` bytes; nothing is connected yet."""
        self.arena: ArenaInfo | None = None
        self._block_bytes = block_bytes
        self._arena_fd = -1
        self._worker_epoch = 0
        self._seq = 0
        self._open: dict[int, asyncio.Future[JobResult]] = {}
        self._client: RpcClient[Reply, JobResult] | None = None

    @property
    def client(self) -> RpcClient[Reply, JobResult]:
        """The connection.

        Raises:
            UnavailableError: there is none.
        """
        if self._client is None:
            raise UnavailableError("not connected")
        return self._client

    async def attach(self, socket: Path) -> Attached:
        """Connect as soon as the worker listens, hand over the arena of its earlier lives, and keep the one it has."""
        self.detach()
        self._client = await connect_to_worker(socket, self._pushed)
        fds = [] if self.arena is None else [self._arena_fd]
        request = Attach(version=PROTOCOL_VERSION, instance="node", epoch=TEST_EPOCH, arena=self.arena)
        reply, received = await self.client.call_with_fds(request, timeout_seconds=CALL_SECONDS, fds=fds)
        attached = expect(reply, Attached)
        self._close_arena()
        (self._arena_fd,) = received
        self.arena, self._worker_epoch = attached.arena, attached.worker_epoch
        return attached

    def detach(self) -> None:
        """Close the connection; the arena stays."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def close(self) -> None:
        """Close the connection and give up the arena."""
        self.detach()
        self._close_arena()

    async def map(self, memory: EngineMemory, *, executor: str = Executor.MAPPED) -> None:
        """Map an engine's memory under the number that all jobs name.

        Raises:
            UnsupportedOperationError: the worker does not have this executor, or it does not work there.
        """
        request = map_request(memory, MAPPING, executor=executor)
        await self.client.call(request, timeout_seconds=CALL_SECONDS, fds=map_fds(memory))

    async def run(self, kind: JobKind, *moves: Move) -> list[ItemStatus]:
        """Submit a job, wait for its result, acknowledge it."""
        self._seq += 1
        seq = self._seq
        done: asyncio.Future[JobResult] = asyncio.get_running_loop().create_future()
        self._open[seq] = done
        job = transfer_job(
            kind, moves, payload_bytes=self._block_bytes, seq=seq, worker_epoch=self._worker_epoch, mapping=MAPPING
        )
        expect(await self._ask(Submit(job=job, settled_below=min(self._open))), Accepted)
        async with asyncio.timeout(CALL_SECONDS):
            result = await done
        del self._open[seq]
        await self._ask(Ack(epoch=TEST_EPOCH, seqs=(seq,), settled_below=min(self._open, default=seq + 1)))
        return result.statuses()

    async def inventory(self, tier: Tier) -> list[InventoryRecord]:
        """All slots of a tier that were ever granted."""
        records: list[InventoryRecord] = []
        page = InventoryPage(worker_epoch=0, tier=tier, records=b"", cursor=0, end=False)
        while not page.end:
            page = expect(await self._ask(Inventory(tier=tier, cursor=page.cursor)), InventoryPage)
            records.extend(parse_inventory(page.records))
        return records

    async def _ask(self, request: Submit | Ack | Inventory) -> Reply:
        return await self.client.call(request, timeout_seconds=CALL_SECONDS)

    def _pushed(self, result: JobResult) -> None:
        # Results are repeated until acknowledged: one may arrive again after it was taken.
        waiting = self._open.get(result.seq)
        if waiting is not None and not waiting.done():
            waiting.set_result(result)

    def _close_arena(self) -> None:
        if self._arena_fd >= 0:
            os.close(self._arena_fd)
            self._arena_fd = -1
