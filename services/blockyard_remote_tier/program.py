"""The remote-tier as a program: shared object store and prefix index of a node.

Threading: see ``service``; this file only starts and stops things in order.
"""

from typing import Final

from blockyard.core.clock import SystemClock
from blockyard.core.job_ledger import JobLedger
from blockyard.core.vocabulary import WorkerRole
from blockyard.runtime.node_folder import ServiceName
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.supervisor import ServiceContext, run_service
from blockyard.runtime.task_end import end_tasks
from blockyard.runtime.worker_server import WorkerServer
from blockyard.wire.worker_channel import Job
from blockyard_remote_tier.job_meter import JobMeter
from blockyard_remote_tier.service import RemoteTier, real_ports

_CONCURRENT_JOBS: Final = 8
_DESCRIPTION: Final = "Stores KV blocks of a node in a shared object store, and finds those of others."


async def serve(context: ServiceContext) -> None:
    """Serve the job channel until the service shall stop."""
    settings = context.settings
    tier = RemoteTier(
        settings,
        real_ports(settings, context.clock),
        worker_epoch=context.life.epoch,
        clock=context.clock,
        health=context.health,
        metrics=context.metrics,
        tracer=context.tracer,
        attached=lambda: server.attached,
    )
    ledger = JobLedger[Job](context.life.epoch, context.clock, limit=settings.jobs.queue_limit)
    server = WorkerServer(
        WorkerRole.REMOTE_TIER,
        ledger,
        tier.executor,
        context.folder.socket,
        clock=context.clock,
        concurrency=_CONCURRENT_JOBS,
        meter=JobMeter(context.metrics),
        tracer=context.tracer,
    )
    try:
        async with context.serve_http(settings.http.remote_tier_port), server:
            upkeep = context.start(tier.upkeep.run(), "upkeep")
            context.health.started = True
            await context.stop.wait()
            await end_tasks(upkeep)
    finally:
        await tier.close()


def run() -> int:
    """Run the service; returns its exit code."""
    return run_service(serve, ServiceName.REMOTE_TIER, _DESCRIPTION, check=_check)


def _check(settings: NodeSettings) -> None:
    real_ports(settings, SystemClock())
