"""Columns of the calls to a block-manager: checked before they are sent, read when they come back.

An availability that this version does not know counts as unknown, never as a hit or a miss.
Threading: pure functions.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import RequestError, UnavailableError
from blockyard.core.vocabulary import Availability, EngineBlockId
from blockyard.wire import connector_channel as channel

_AVAILABILITY: Final = {int(value): value for value in Availability}


def check_blocks(blocks: Sequence[EngineBlockId], limit: int) -> None:
    """Refuse memory blocks outside of an engine's memory of ``limit`` blocks, or named twice.

    Raises:
        RequestError: names the block.
    """
    for block in blocks:
        if not 0 <= block < limit:
            raise RequestError("no such block in the engine's memory", block=block, blocks=limit)
    if len(set(blocks)) != len(blocks):
        raise RequestError("a call names no memory block twice", field="blocks")


def check_places(run: ChainRun, blocks: Sequence[EngineBlockId], limit: int) -> None:
    """Refuse anything but one memory block per block of the run.

    Raises:
        RequestError: names what is wrong.
    """
    if len(run) != len(blocks):
        raise RequestError("one memory block per block of the run", run=len(run), blocks=len(blocks))
    check_blocks(blocks, limit)


def wire_run(run: ChainRun) -> channel.Run:
    """The run as it travels."""
    return channel.Run(digests=run.digests, first_position=run.first_position, parent=run.parent)


def column(code: str, values: Sequence[int]) -> bytes:
    """Packed column; the platforms of the engines (x86-64, arm64) are little-endian."""
    return array(code, values).tobytes()


def availability_of(reply: channel.LookupReply, blocks: int) -> tuple[Availability, ...]:
    """Answer of a lookup of ``blocks`` blocks.

    Raises:
        UnavailableError: it is the answer to another question.
    """
    if len(reply.availability) != blocks:
        raise UnavailableError("a lookup was answered for other blocks", asked=blocks, answered=len(reply.availability))
    return tuple(_AVAILABILITY.get(value, Availability.UNKNOWN) for value in reply.availability)
