"""What is known of a block: the columns a writer supplies and the facts a reader gets.

Invariants: values are copies; later changes of the table do not reach them.
Threading: values only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import KernelError
from blockyard.core.vocabulary import (
    DEFAULT_TENANT,
    DIGEST_BYTES,
    KEY_BYTES,
    BlockId,
    ContentKey,
    Generation,
    GroupId,
    IdentityDigest,
    TenantDigest,
)
from blockyard.core.whole_numbers import is_whole

DEFAULT_GROUP: Final = GroupId(0)
"""The group of models that have one."""
MAX_GROUP: Final = 2**16 - 1
MAX_POSITION: Final = 2**32 - 1


class StagedNames(NamedTuple):
    """Checked names of the rows of one handle, aligned with them; copies, so that nobody else can change them."""

    keys: list[ContentKey]
    parents: list[ContentKey]
    positions: Sequence[int]
    identity: IdentityDigest
    tenant: TenantDigest
    group: GroupId

    def pick(self, indexes: Sequence[int]) -> "StagedNames":
        """Names at ``indexes``, in that order."""
        return self._replace(
            keys=[self.keys[index] for index in indexes],
            parents=[self.parents[index] for index in indexes],
            positions=[self.positions[index] for index in indexes],
        )


_names: Final = partial(tuple.__new__, StagedNames)
"""Names from one tuple of all fields; the generated constructor costs twice as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedColumns:
    """Names of n blocks of one identity, tenant and group, aligned with the rows of a handle."""

    keys: Sequence[ContentKey]
    parents: Sequence[ContentKey]
    positions: Sequence[int]
    identity: IdentityDigest
    tenant: TenantDigest = DEFAULT_TENANT
    group: GroupId = DEFAULT_GROUP

    def __post_init__(self) -> None:
        """Refuse what would fail in the middle of a change of the table."""
        if not len(self.keys) == len(self.parents) == len(self.positions):
            raise KernelError(
                "columns differ in length",
                keys=len(self.keys),
                parents=len(self.parents),
                positions=len(self.positions),
            )
        widths = {*map(len, self.keys), *map(len, self.parents)}
        if not widths <= {KEY_BYTES}:
            raise KernelError("a key has 16 bytes", width=max(widths - {KEY_BYTES}))
        if not _are_positions(self.positions):
            raise KernelError("a position is an unsigned 32-bit integer", most=MAX_POSITION, blocks=len(self.positions))
        if not is_whole(self.group, most=MAX_GROUP):
            raise KernelError("a group is an unsigned 16-bit integer", group=str(self.group))
        if len(self.identity) != DIGEST_BYTES or len(self.tenant) != KEY_BYTES:
            raise KernelError("a digest is too short or too long", identity=len(self.identity), tenant=len(self.tenant))

    @classmethod
    def of_run(
        cls,
        run: ChainRun,
        identity: IdentityDigest,
        tenant: TenantDigest = DEFAULT_TENANT,
        group: GroupId = DEFAULT_GROUP,
    ) -> "StagedColumns":
        """Columns of the blocks of one chain."""
        keys = run.keys()
        return cls(
            keys=keys,
            parents=[run.parent, *keys[:-1]] if keys else [],
            positions=range(run.first_position, run.first_position + len(keys)),
            identity=identity,
            tenant=tenant,
            group=group,
        )

    def names(self) -> StagedNames:
        """A copy of the names."""
        positions = self.positions
        # A range needs no copy.
        copied = positions if isinstance(positions, range) else list(positions)
        return _names((list(self.keys), list(self.parents), copied, self.identity, self.tenant, self.group))

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.keys)


def _are_positions(positions: Sequence[int]) -> bool:
    if not positions:
        return True
    # What stands between the ends of a range is known.
    looked_at = (positions[0], positions[-1]) if isinstance(positions, range) else positions
    return set(map(type, looked_at)) == {int} and 0 <= min(looked_at) <= max(looked_at) <= MAX_POSITION


class BlockFacts(NamedTuple):
    """One registered (or just removed) block. A tuple, as one is made per evicted block on the grant path."""

    block: BlockId
    generation: Generation
    key: ContentKey
    parent: ContentKey
    position: int
    identity: IdentityDigest
    tenant: TenantDigest
    group: GroupId
    refs: int


class AdoptedBlock(NamedTuple):
    """One stored block found at start-up; its fields have the widths of the header they were read from."""

    block: BlockId
    generation: Generation
    key: ContentKey
    parent: ContentKey
    position: int
    identity: IdentityDigest
    tenant: TenantDigest = DEFAULT_TENANT
    group: GroupId = DEFAULT_GROUP
