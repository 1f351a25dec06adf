"""The first steps on a worker's channel that every test of a real worker takes.

Threading: one event loop.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from blockyard.core.errors import UnavailableError, UnsupportedOperationError
from blockyard.runtime.rpc.client import RpcClient
from blockyard.testing.service_process import START_SECONDS
from blockyard.wire.worker_channel import JobResult, Push, Reply

_POLL_SECONDS: Final = 0.02
ReplyT = TypeVar("ReplyT")


async def connect_to_worker(path: Path, pushed: Callable[[JobResult], None]) -> RpcClient[Reply, JobResult]:
    """Connect as soon as the worker listens."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                return await RpcClient.connect(path, Reply, Push, pushed)
            except UnavailableError:
                await asyncio.sleep(_POLL_SECONDS)


def expect(reply: Reply, kind: type[ReplyT]) -> ReplyT:
    """The reply, if it is of this kind.

    Raises:
        UnsupportedOperationError: it is another.
    """
    if not isinstance(reply, kind):
        raise UnsupportedOperationError("the worker answered with something else", reply=repr(reply))
    return reply
