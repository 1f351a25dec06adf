"""What a demo engine can be told, one JSON object per line.

``{"cmd": "replay", "first": 0, "count": 100, "pace": 0, "concurrency": 4}``: serve these requests; ``pace`` is the
factor by which trace time is compressed, 0 = as fast as possible. ``{"cmd": "probe", "key": "<32 hex>"}``: drop the own
cache, serve the first request that contains this block, and report what became of it. ``reset``, ``stats``, ``quit``.
Threading: values only.
"""

from typing import Annotated

import msgspec


class Replay(msgspec.Struct, frozen=True, tag_field="cmd", tag="replay"):
    """Serve ``count`` requests from ``first`` on."""

    first: Annotated[int, msgspec.Meta(ge=0)] = 0
    count: Annotated[int, msgspec.Meta(ge=0)] = 1_000_000
    pace: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    concurrency: Annotated[int, msgspec.Meta(ge=1)] = 4


class Probe(msgspec.Struct, frozen=True, tag_field="cmd", tag="probe"):
    """Serve the first request that contains the block ``key`` (hex)."""

    key: str


class Reset(msgspec.Struct, frozen=True, tag_field="cmd", tag="reset"):
    """Drop the own prefix cache."""


class Stats(msgspec.Struct, frozen=True, tag_field="cmd", tag="stats"):
    """Report the counters."""


class Quit(msgspec.Struct, frozen=True, tag_field="cmd", tag="quit"):
    """End the conversation; an engine that was driven over its pipes ends with it."""


Command = Replay | Probe | Reset | Stats | Quit
