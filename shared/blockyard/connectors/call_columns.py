"""Columns of the calls to a block-manager: checked before they are sent, read when they come back.

An availability that this version does not know counts as unknown, never as a hit or a miss.
Threading: pure functions.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import RequestError, UnavailableError
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import Availability, EngineBlockId
from blockyard.wire import connector_channel as channel

_AVAILABILITY: Final = {int(value): value for value in Availability}


def check_blocks(blocks: Sequence[EngineBlockId], limit: int) -> None:
    """Refuse memory blocks outside of an engine's memory of ``limit`` blocks, or named twice.

    Raises:
        RequestError: names the block.
    """
    if blocks and not 0 <= min(blocks) <= max(blocks) < limit:
        worst = min(blocks) if min(blocks) < 0 else max(blocks)
        raise RequestError("no such block in the engine's memory", block=worst, blocks=limit)
    if len(set(blocks)) != len(blocks):
        raise RequestError("a call names no memory block twice", field="blocks")


def check_pages(run: ChainRun, pages: Sequence[EngineBlockId], pages_per_row: int) -> None:
    """Refuse anything but ``pages_per_row`` pages per row of the run.

    Raises:
        RequestError: says how many there are.
    """
    if len(run) * pages_per_row != len(pages):
        raise RequestError(
            "a row has as many memory blocks as its group says", run=len(run), blocks=len(pages), per_row=pages_per_row
        )


def wanted_pages(pages: Sequence[EngineBlockId]) -> tuple[EngineBlockId, ...]:
    """The pages that the engine has a use for."""
    return tuple(page for page in pages if page != NO_PAGE)


def wire_run(run: ChainRun) -> channel.Run:
    """The run as it travels."""
    return channel.Run(digests=run.digests, first_position=run.first_position, parent=run.parent)


def column(code: str, values: Sequence[int]) -> bytes:
    """Packed column; the platforms of the engines (x86-64, arm64) are little-endian."""
    return array(code, values).tobytes()


def availability_of(reply: channel.LookupReply, blocks: int, groups: int) -> tuple[tuple[Availability, ...], ...]:
    """Answer of a lookup of ``blocks`` blocks in ``groups`` groups: one tuple per group.

    Raises:
        UnavailableError: it is the answer to another question.
    """
    asked, answered = blocks * groups, len(reply.availability)
    if answered != asked:
        raise UnavailableError("a lookup was answered for other blocks", asked=asked, answered=answered)
    found = tuple(_AVAILABILITY.get(value, Availability.UNKNOWN) for value in reply.availability)
    return tuple(found[group * blocks : (group + 1) * blocks] for group in range(groups))
