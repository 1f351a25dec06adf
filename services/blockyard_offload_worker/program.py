"""The offload-worker as a program: owner of the bytes in host memory (G2) and on local disk (G3)."""

from contextlib import AsyncExitStack
from typing import Final

from blockyard.core.job_ledger import JobLedger
from blockyard.core.vocabulary import WorkerRole
from blockyard.runtime.memory_limit import memory_limit
from blockyard.runtime.node_folder import NodeFolder, ServiceName
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.supervisor import ServiceContext, run_service
from blockyard.runtime.worker_server import WorkerServer
from blockyard.wire.worker_channel import Job
from blockyard_offload_worker.arena_owner import ArenaPlan
from blockyard_offload_worker.data_plane import open_data_plane
from blockyard_offload_worker.disk_tier import DiskPlan
from blockyard_offload_worker.transfer_meter import TransferMeter

_CONCURRENT_JOBS: Final = 16
"""Jobs wait for the disk or for a commit most of their time; with few at once, stores would hold up loads."""


def run() -> int:
    """Run the service; returns the exit code."""
    return run_service(
        serve,
        ServiceName.OFFLOAD_WORKER,
        "Own the host memory and local disk tiers of a node and move blocks between them and the engines.",
        check=_check,
    )


async def serve(context: ServiceContext) -> None:
    """Serve the job channel until asked to stop, then end what runs and close the tiers in order."""
    settings = context.settings
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(context.serve_http(settings.http.offload_worker_port))
        executor = await stack.enter_async_context(open_data_plane(context))
        ledger = JobLedger[Job](context.life.epoch, context.clock, limit=settings.jobs.queue_limit)
        server = WorkerServer(
            WorkerRole.OFFLOAD_WORKER,
            ledger,
            executor,
            context.folder.socket,
            clock=context.clock,
            concurrency=_CONCURRENT_JOBS,
            meter=TransferMeter(context.metrics),
            tracer=context.tracer,
        )
        await stack.enter_async_context(server)
        context.health.started = True
        await context.stop.wait()
        # Before the channel closes, so that the block-manager still hears how the running jobs ended.
        await executor.drain()


def _check(settings: NodeSettings) -> None:
    disk_slots = DiskPlan.of(settings, NodeFolder.of(settings)).slots if settings.g3.enabled else 0
    ArenaPlan.of(settings).check_memory(memory_limit(), disk_slots)
