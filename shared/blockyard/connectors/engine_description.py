"""Who an engine is and what its KV memory looks like, as it says with every hello.

Threading: frozen values.
"""

from dataclasses import dataclass
from typing import final

from blockyard.core.errors import RequestError
from blockyard.core.identity import ModelIdentity
from blockyard.core.kv_groups import KvGroup
from blockyard.core.vocabulary import EngineId, Executor, GroupId
from blockyard.wire import connector_channel as channel
from blockyard.wire.codec import PROTOCOL_VERSION


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDescription:
    """Who the engine is; sent with every hello."""

    engine: EngineId
    identity: ModelIdentity
    dp_rank: int = 0
    life: str = ""
    """Name of this start of the engine, the same in all its processes, so that a rank of an earlier start that still
    runs is not taken for one of this; needed where ``engine`` stays the same from start to start."""
    blocks: int
    """Engine blocks in the KV memory; all groups share their numbers."""
    groups: tuple[KvGroup, ...]
    ranks: int = 1
    executor: Executor = Executor.MAPPED

    def pages_per_row(self, group: GroupId) -> int:
        """Engine blocks of one row of a group.

        Raises:
            RequestError: the engine has no such group.
            LayoutMismatchError: a block is not a whole number of engine blocks.
        """
        if not 0 <= group < len(self.groups):
            raise RequestError("the engine has no such group", group=group, groups=len(self.groups))
        return self.groups[group].pages_per_row(self.identity.block_tokens)

    def hello(self) -> channel.Hello:
        """The description as it travels."""
        return channel.Hello(
            version=PROTOCOL_VERSION,
            engine=self.engine,
            dp_rank=self.dp_rank,
            life=self.life,
            identity=self.identity,
            blocks=self.blocks,
            groups=tuple(
                channel.Group(
                    group=group.group,
                    kind=group.kind.value,
                    engine_block_tokens=group.engine_block_tokens,
                    window_tokens=group.window_tokens,
                    replicated=group.replicated,
                )
                for group in self.groups
            ),
            ranks=self.ranks,
            executor=self.executor.value,
        )
