"""Where channels call into the decisions: a broken rule of the kernel ends the service, not just a connection.

A request may be refused and a worker may be away; those errors go back to whoever asked. A ``KernelError`` out of a
decision means that our own state is not what we think. A restart rebuilds it from the headers, going on would not.
Threading: no state.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from blockyard.core.errors import KernelError


class DecisionError(Exception):
    """A decision broke a rule of the kernel; not meant to be handled."""


@contextmanager
def deciding() -> Iterator[None]:
    """Run a decision; what must not happen leaves as an error that nobody answers."""
    try:
        yield
    except KernelError as error:
        raise DecisionError(str(error)) from error


def end_service(error: DecisionError) -> None:
    """End the service from within a task of a library, which would only log what leaves it."""
    asyncio.get_running_loop().call_soon(_fail, error)


def _fail(error: DecisionError) -> NoReturn:
    raise error
