"""Which core the scheduler's thread of an engine has to itself, where a benchmark measures what that thread is held.

A step's microseconds say nothing while the operating system gives the core to the node or to the client's thread: with
two cores and four busy processes that takes milliseconds. Whoever runs engines leaves their schedulers a core.
Threading: for the calling thread, and what it starts from then on.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager


def scheduler_core() -> tuple[set[int], set[int]]:
    """The last core, and all others; on a machine with one core, that one twice."""
    *others, own = sorted(os.sched_getaffinity(0))
    return {own}, set(others) or {own}


@contextmanager
def kept_off_the_scheduler_core() -> Iterator[None]:
    """What is started within stays off the core of the scheduler."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, scheduler_core()[1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)
