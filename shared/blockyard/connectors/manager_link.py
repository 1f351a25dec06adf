"""One connection to a block-manager: typed calls, the pushes that end loads, and what to do while it says nothing.

It is that of an engine or that of one of its ranks; what it introduces itself as decides.

::

    answering ──a call had no answer in time, nothing else came either──► silent ──a probe is answered──► answering
                                                                             └── if it was told too little ──► closed

A block-manager that hangs costs one timeout: while it is silent calls fail at once, only one probe waits for it.
Invariants: a push that overtakes the reply of its ``OpenLoad`` is kept until it is asked for; when the connection ends,
from either side, every waiting load ends with ``PeerClosedError``. What a failed call means for what it asked for is
told apart by its error, see ``call``. Threading: one event loop.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar, final

from blockyard.core.errors import (
    BlockyardError,
    DeadlineExceededError,
    MalformedFrameError,
    PeerClosedError,
    UnavailableError,
    UnknownSessionError,
)
from blockyard.core.vocabulary import LoadId
from blockyard.runtime.rpc.client import RpcClient
from blockyard.wire import connector_channel as channel
from blockyard.wire.trace_parent import NO_TRACE, TraceParent

Expected = TypeVar("Expected", bound=channel.Reply)
LoadEnd = channel.LoadFinished | channel.LoadStaged
ExpectedEnd = TypeVar("ExpectedEnd", channel.LoadFinished, channel.LoadStaged)
Notice = channel.StoresSettled | channel.ArenaReplaced | channel.LoadingSwitched
"""Pushes that nobody waits for."""

CALL_TIMEOUT_SECONDS: Final = 1.0
"""An engine can compute instead of waiting, so a block-manager that is late counts as one that does not answer."""
PATIENT_SECONDS: Final = 10.0
"""For calls that no request of an engine waits for; a hello may itself wait for the offload-worker."""
_PROBE: Final = channel.Deregister(blocks=b"")
"""Changes nothing and is answered at once."""
_PROBE_PAUSE_SECONDS: Final = 0.05


@final
class ManagerLink:
    """An open connection; made by ``open``."""

    def __init__(self, on_notice: Callable[[Notice], None]) -> None:
        """Use ``open``."""
        self._on_notice = on_notice
        self._probe: asyncio.Task[None] | None = None
        """Waits for an answer while the block-manager is silent."""
        self._close_when_answered = False
        self._rpc: RpcClient[channel.Reply, channel.Push] | None = None
        self._waiting: dict[LoadId, asyncio.Future[LoadEnd]] = {}
        self._early: dict[LoadId, LoadEnd] = {}

    @classmethod
    async def open(cls, socket: Path, on_notice: Callable[[Notice], None]) -> "ManagerLink":
        """Connect; ``on_notice`` is called with every push that nobody waits for, and must neither block nor raise.

        Raises:
            UnavailableError: nobody listens there.
        """
        link = cls(on_notice)
        link._rpc = await RpcClient.connect(
            socket,
            reply_type=channel.Reply,
            push_type=channel.Push,
            on_push=link._on_push,
            timeout_seconds=PATIENT_SECONDS,
        )
        return link

    async def introduce(
        self, request: channel.Hello | channel.AttachRank, kind: type[Expected], fds: Sequence[int]
    ) -> tuple[Expected, list[int]]:
        """Say who this is; memory travels along. Descriptors that come with the answer are the caller's.

        Raises:
            UnavailableError: no answer.
            BlockyardError: why the block-manager refuses.
        """
        reply, received = await self._open_rpc().call_with_fds(request, timeout_seconds=PATIENT_SECONDS, fds=fds)
        try:
            return self._expected(reply, kind), received
        except PeerClosedError:
            for fd in received:
                os.close(fd)
            raise

    async def call(
        self,
        request: channel.Request,
        kind: type[Expected],
        *,
        timeout_seconds: float = CALL_TIMEOUT_SECONDS,
        trace: TraceParent = NO_TRACE,
    ) -> Expected:
        """Ask, on behalf of a trace, and check the type of the answer.

        Raises:
            PeerClosedError: the session is over (this end closes it where the answer makes no sense); whether the
                request was carried out is unknown.
            DeadlineExceededError: no answer in time; whether the request is carried out is unknown.
            BlockyardError: the request was refused, or not even sent; nothing was carried out.
        """
        rpc = self._open_rpc()
        if self.silent:
            raise UnavailableError("not asked: the block-manager left an earlier call without an answer")
        heard = rpc.frames_received
        try:
            reply = await rpc.call(request, timeout_seconds=timeout_seconds, trace=trace)
        except DeadlineExceededError:
            if rpc.frames_received == heard:
                self._fell_silent()
            raise
        except (UnknownSessionError, MalformedFrameError) as error:
            self.close()
            raise PeerClosedError("the session with the block-manager ended", reason=error.detail) from error
        except BlockyardError as error:
            # The last words of a connection answer every call in progress alike: they are no refusal of this one.
            if rpc.ended is not None and not isinstance(error, PeerClosedError):
                raise PeerClosedError("the session with the block-manager ended", reason=error.detail) from error
            raise
        return self._expected(reply, kind)

    @property
    def silent(self) -> bool:
        """Whether a call had no answer and nothing was heard since."""
        return self._probe is not None

    def give_up(self) -> None:
        """What the other side was told is not enough to go on: end the connection, a silent one when it answers.

        A new connection to a block-manager that hangs would only wait there, and this one still brings its answer.
        """
        if self.silent:
            self._close_when_answered = True
        else:
            self.close()

    async def finished(self, load: LoadId, timeout_seconds: float) -> channel.LoadFinished:
        """Wait for the end of a load.

        Raises:
            PeerClosedError: the connection ended first.
            DeadlineExceededError: no end within ``timeout_seconds``.
        """
        return await self._end_of(load, channel.LoadFinished, timeout_seconds)

    async def staged(self, load: LoadId, timeout_seconds: float) -> channel.LoadStaged:
        """Wait until a load without pages lies in G2; raises as ``finished``."""
        return await self._end_of(load, channel.LoadStaged, timeout_seconds)

    def forget(self, load: LoadId) -> None:
        """Drop the end of a load that nobody waits for any more."""
        self._early.pop(load, None)

    async def wait_closed(self) -> None:
        """Return when the other side is gone or ``close`` was called."""
        await self._open_rpc().closed.wait()
        self._end_waiting()

    def close(self) -> None:
        """End the connection; ``wait_closed`` returns, and loads that wait end with an error. Idempotent."""
        self._open_rpc().close()  # which also ends the probe
        self._end_waiting()

    def _fell_silent(self) -> None:
        if self._probe is None and self._open_rpc().ended is None:
            self._probe = asyncio.create_task(self._until_answered(self._open_rpc()), name="blockyard-probe")

    async def _until_answered(self, rpc: RpcClient[channel.Reply, channel.Push]) -> None:
        heard = rpc.frames_received
        while rpc.ended is None and rpc.frames_received == heard:
            # Any answer will do, also a refusal; the end of the connection ends the loop.
            with contextlib.suppress(BlockyardError):
                await rpc.call(_PROBE, timeout_seconds=PATIENT_SECONDS)
            await asyncio.sleep(_PROBE_PAUSE_SECONDS)  # an error may come at once
        self._probe = None
        if self._close_when_answered:
            self.close()

    async def _end_of(self, load: LoadId, kind: type[ExpectedEnd], timeout_seconds: float) -> ExpectedEnd:
        push = self._early.pop(load, None)
        if push is None:
            push = await self._pushed_end(load, timeout_seconds)
        if not isinstance(push, kind):
            self.close()
            raise PeerClosedError("the block-manager ended a load as another kind of load", load=load)
        return push

    async def _pushed_end(self, load: LoadId, timeout_seconds: float) -> LoadEnd:
        if self._open_rpc().closed.is_set():
            raise PeerClosedError("the connection ended during a load", load=load)
        future: asyncio.Future[LoadEnd] = asyncio.get_running_loop().create_future()
        self._waiting[load] = future
        try:
            return await asyncio.wait_for(future, timeout_seconds)
        except TimeoutError:
            raise DeadlineExceededError("the load did not settle", load=load) from None
        finally:
            self._waiting.pop(load, None)

    def _end_waiting(self) -> None:
        for load, future in self._waiting.items():
            if not future.done():
                future.set_exception(PeerClosedError("the connection ended during a load", load=load))

    def _on_push(self, push: channel.Push) -> None:
        if not isinstance(push, channel.LoadFinished | channel.LoadStaged):
            self._on_notice(push)
            return
        load = LoadId(push.load)
        waiting = self._waiting.get(load)
        if waiting is None:
            self._early[load] = push
        elif not waiting.done():
            waiting.set_result(push)

    def _expected(self, reply: channel.Reply, kind: type[Expected]) -> Expected:
        if not isinstance(reply, kind):
            self.close()
            raise PeerClosedError("the block-manager answered with another message", message=type(reply).__name__)
        return reply

    def _open_rpc(self) -> RpcClient[channel.Reply, channel.Push]:
        if self._rpc is None:
            raise UnavailableError("the link was never opened")
        return self._rpc
