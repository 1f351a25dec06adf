"""KV memory of one rank as the node gets it: a descriptor, and where the pages of each group lie in it.

Threading: frozen values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from blockyard.core.kv_groups import Region
from blockyard.core.vocabulary import EngineId
from blockyard.wire import connector_channel as channel
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.worker_channel import RegionInfo


@final
@dataclass(frozen=True, slots=True)
class RankMemory:
    """Memory of a rank. The descriptor stays its owner's, who keeps it open while the rank is attached."""

    fd: int
    """Of a memory file that is sealed against shrinking."""
    memory_bytes: int
    regions: tuple[tuple[Region, ...], ...]
    """Per group, in the order of the engine's groups."""


def attach_message(
    engine: EngineId,
    dp_rank: int,
    rank: int,
    memory_bytes: int,
    regions: Sequence[Sequence[Region]],
    *,
    life: str = "",
) -> channel.AttachRank:
    """What a rank says to attach; its descriptor travels along, if it hands its memory over."""
    return channel.AttachRank(
        version=PROTOCOL_VERSION,
        engine=engine,
        dp_rank=dp_rank,
        life=life,
        rank=rank,
        memory_bytes=memory_bytes,
        regions=tuple(tuple(_wire_region(region) for region in group) for group in regions),
    )


def _wire_region(region: Region) -> RegionInfo:
    return RegionInfo(offset_bytes=region.offset_bytes, stride_bytes=region.stride_bytes, page_bytes=region.page_bytes)
