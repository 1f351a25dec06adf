"""Frame around the main coroutine of a service: command line, settings, lock, signals, and how it ends.

::

    parse → settings → logs → lock and epoch → main(context) → exit code
    0 stopped as asked   1 crashed (logged with its cause)   2 cannot start   3 fenced: a later life has taken over
    (2 and 3 are explained in one line on standard error)

Signals that come before main runs end the process at once (``first_moment``).
Invariants: the first SIGTERM or SIGINT sets ``context.stop``, and main ends by itself; if it has not after the grace
time, or at a second signal, it is cancelled. An error that nobody expected ends the process: its tables may be half
changed, while a restart rebuilds them. Background tasks started by ``context.start`` live no longer than main, and
main no longer than any of them that fails.
Threading: main thread only; asyncio's own loop.
"""

import argparse
import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from blockyard.core.clock import Clock, SystemClock
from blockyard.core.errors import BlockyardError, FencedError, StartupError
from blockyard.runtime import task_end
from blockyard.runtime.first_moment import EXIT_CANNOT_START, STOPPING
from blockyard.runtime.http import AsgiApp, Health, ServiceHttp
from blockyard.runtime.logs import configure_logs, get_logger
from blockyard.runtime.loop_lag import measure_loop_lag
from blockyard.runtime.memory_limit import memory_limit
from blockyard.runtime.node_folder import NodeFolder, ServiceFolder, ServiceName
from blockyard.runtime.process_life import ProcessLife
from blockyard.runtime.rpc.unix_socket import check_path
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.settings_source import load_settings, shield_environment
from blockyard.runtime.spans import NO_TRACER, Tracer
from blockyard.runtime.task_end import end_tasks
from blockyard.runtime.telemetry import Metrics

EXIT_STOPPED: Final = 0
EXIT_CRASHED: Final = 1
EXIT_FENCED: Final = 3
GRACE_SECONDS: Final = 10.0
_PR_SET_PDEATHSIG: Final = 1
_log: Final = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceContext:
    """What the main coroutine of a service gets."""

    settings: NodeSettings
    service: ServiceName
    node: NodeFolder
    folder: ServiceFolder
    life: ProcessLife
    clock: Clock
    health: Health
    metrics: Metrics
    tracer: Tracer
    stop: asyncio.Event
    """Set when the service shall end."""
    _group: asyncio.TaskGroup
    _background: set[asyncio.Task[None]] = field(default_factory=set)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run ``work`` beside main: cancelled when main ends; if it fails, so does the service."""
        task = self._group.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def serve_http(self, port: int, app: AsgiApp | None = None) -> ServiceHttp:
        """HTTP side of this service; use as ``async with context.serve_http(port):``."""
        http, key = self.settings.http, f"http.{self.service.replace('-', '_')}_port"
        return ServiceHttp(
            http.host,
            port,
            self.health,
            self.metrics,
            app,
            advertised_host=http.advertised_host,
            folder=self.folder,
            port_key=key,
        )

    async def end_background(self) -> None:
        """End everything started by ``start``."""
        await end_tasks(*self._background)


Main = Callable[[ServiceContext], Awaitable[None]]
SettingsCheck = Callable[[NodeSettings], None]


def _accept(_: NodeSettings) -> None:
    """Settings that are well-formed are good enough."""


def run_service(
    main: Main,
    name: ServiceName,
    description: str,
    argv: Sequence[str] | None = None,
    *,
    check: SettingsCheck = _accept,
) -> int:
    """Run a service until it is stopped; returns its exit code.

    Args:
        main: coroutine function; returns soon after ``context.stop`` is set.
        name: which service this is.
        description: one sentence for ``--help``.
        argv: command line without the program name; the process's own by default.
        check: raises ``ConfigurationError`` for well-formed settings with which main could not start; touches nothing.
    """
    options = _parse(name, description, argv)
    try:
        if options.die_with_parent:
            _die_with_parent()
        settings = load_settings()
        # Before the check: it may make the clients that would read what is taken away here.
        shield_environment()
        node = NodeFolder.of(settings)
        check_path(node.service(name).socket)
        node.service(name).check()
        check(settings)
        if options.check_config:
            sys.stdout.write("configuration: ok\n")
            return EXIT_STOPPED
        configure_logs(settings.log, name)
        clock = SystemClock()
        with ProcessLife.acquire(node.service(name), clock) as life:
            # Left behind where the life before was killed: nobody answers there, or somebody else by now.
            node.service(name).remove_http()
            return asyncio.run(_supervise(main, settings, name, node, life, clock))
    except BlockyardError as error:
        sys.stderr.write(f"blockyard-{name}: {error}\n")
        return EXIT_FENCED if isinstance(error, FencedError) else EXIT_CANNOT_START


def _parse(name: ServiceName, description: str, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"blockyard-{name}",
        description=description,
        epilog="Settings come from BLOCKYARD_* variables and the file named by BLOCKYARD_CONFIG.",
    )
    parser.add_argument("--check-config", action="store_true", help="say whether these settings are right, and exit")
    parser.add_argument("--die-with-parent", action="store_true", help="stop when the process that started this ends")
    return parser.parse_args(argv)


async def _supervise(
    main: Main, settings: NodeSettings, name: ServiceName, node: NodeFolder, life: ProcessLife, clock: Clock
) -> int:
    metrics = _metrics_of(name, life)
    try:
        # Outside of the group: what its tasks end with has spans, too.
        with _tracing(settings, name, life, metrics) as tracer:
            async with asyncio.TaskGroup() as group:
                context = ServiceContext(
                    settings=settings,
                    service=name,
                    node=node,
                    folder=node.service(name),
                    life=life,
                    clock=clock,
                    health=Health(),
                    metrics=metrics,
                    tracer=tracer,
                    stop=asyncio.Event(),
                    _group=group,
                )
                _log.info("starting", epoch=life.epoch, folder=str(context.folder.path))
                context.start(measure_loop_lag(metrics.event_loop_lag_seconds, clock), "loop-lag")
                work = group.create_task(_run(main, context), name="main")
                try:
                    await _Watch(context, work).wait()
                finally:
                    # The group alone would ask each of them once, and wait for ever for one that missed it.
                    await end_tasks(work)
                    await context.end_background()
    except ExceptionGroup as errors:
        cause = _first(errors)
        if isinstance(cause, StartupError | FencedError):
            # One sentence for people instead of a trace: the environment is wrong, not the program.
            raise cause from None
        _log.error("crashed", exc_info=cause)
        return EXIT_CRASHED
    _log.info("stopped")
    return EXIT_STOPPED


def _tracing(
    settings: NodeSettings, name: ServiceName, life: ProcessLife, metrics: Metrics
) -> AbstractContextManager[Tracer]:
    if not settings.tracing.endpoint_url:
        return nullcontext(NO_TRACER)
    # Not at the top: the library reads the environment when it is imported, and takes memory that only traces need.
    from blockyard.runtime.tracing import open_tracer

    return open_tracer(settings, name, life.epoch, metrics)


def _metrics_of(name: ServiceName, life: ProcessLife) -> Metrics:
    metrics = Metrics(name)
    metrics.epoch.set(life.epoch)
    limit = memory_limit()
    metrics.memory_limit.set(0 if limit is None else limit.bytes)
    return metrics


class _Watch:
    """Ends the main task on signals and on errors in callbacks of the event loop."""

    def __init__(self, context: ServiceContext, work: asyncio.Task[None]) -> None:
        self._context = context
        self._work = work
        self._failure: Exception | None = None
        self._ending: asyncio.TimerHandle | None = None

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._loop_error)
        before = {number: signal.getsignal(number) for number in STOPPING}
        for number in STOPPING:
            loop.add_signal_handler(number, self._signalled)
        try:
            await asyncio.wait({self._work})
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)
            self._forget_end()
        if self._failure is not None:
            raise self._failure
        if self._work.cancelled():
            _log.warning("ended before it had stopped by itself")

    def _signalled(self) -> None:
        if self._context.stop.is_set():
            self._end()
            return
        _log.info("stopping")
        self._context.stop.set()
        self._ending = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._end)

    def _end(self) -> None:
        self._forget_end()
        self._work.cancel()
        self._ending = asyncio.get_running_loop().call_later(task_end.AGAIN_SECONDS, self._end)

    def _forget_end(self) -> None:
        if self._ending is not None:
            self._ending.cancel()

    def _loop_error(self, _: asyncio.AbstractEventLoop, facts: dict[str, Any]) -> None:
        error = facts.get("exception")
        self._context.metrics.unhandled_errors.inc()
        _log.error("error in the event loop", message=facts.get("message"), exc_info=error)
        # A failed plain callback is our own code in the middle of a change. Errors of a library's tasks and
        # transports are its own affair: it reports them to us by other means.
        if "handle" in facts and isinstance(error, Exception) and self._failure is None:
            self._failure = error
            self._end()


async def _run(main: Main, context: ServiceContext) -> None:
    await main(context)


def _first(error: Exception) -> Exception:
    """The first plain error inside a nest of groups: what happened, without what it took down with it."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _die_with_parent() -> None:
    parent = os.getppid()
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        raise StartupError("cannot ask to end with the parent", errno=ctypes.get_errno())
    if os.getppid() != parent:
        raise StartupError("the parent ended during the start")
