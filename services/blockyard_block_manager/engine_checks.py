"""Whether an engine and its ranks fit this node: everything they say of themselves, checked before anything is kept.

Invariants: what passes can be mapped and moved without another look at its numbers; a refusal names the field.
Threading: pure functions.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from blockyard.core.errors import (
    IdentityMismatchError,
    LayoutMismatchError,
    RequestError,
    UnavailableError,
    UnsupportedOperationError,
    UnsupportedVersionError,
)
from blockyard.core.kv_groups import (
    GroupKind,
    KvGroup,
    Region,
    common_block_tokens,
    group_spec,
    parallel_shapes,
    row_bytes,
)
from blockyard.core.vocabulary import Executor, GroupId
from blockyard.wire.codec import PROTOCOL_VERSION
from blockyard.wire.connector_channel import AttachRank, Group, Hello
from blockyard.wire.worker_channel import RegionInfo
from blockyard_block_manager.node_profile import NodeProfile

MAX_RANKS: Final = 64
MAX_GROUPS: Final = 64
MAX_PAGES_PER_ROW: Final = 1_024
_MAX_REGIONS: Final = 4_096
"""In all groups together."""
_MAX_NAME: Final = 128
_MAX_DP_RANK: Final = 65_535
_MAX_BLOCKS: Final = 2**32 - 1
"""The last number of 32 bits means *no page*."""
_MAX_MEMORY_BYTES: Final = 1 << 46
"""Far above the memory of any engine, and small enough for every offset on the way."""


def check_hello(hello: Hello, profile: NodeProfile) -> None:
    """Refuse an engine that does not fit this node.

    Raises:
        UnsupportedVersionError, IdentityMismatchError, LayoutMismatchError, UnsupportedOperationError, RequestError
    """
    if hello.version != PROTOCOL_VERSION:
        raise UnsupportedVersionError(theirs=hello.version, ours=PROTOCOL_VERSION)
    _check_who(hello.engine, hello.dp_rank, hello.life)
    if hello.executor not in set(Executor):
        raise UnsupportedOperationError(
            "no such executor", field="executor", given=hello.executor, known=", ".join(Executor)
        )
    if not 1 <= hello.blocks <= _MAX_BLOCKS:
        raise RequestError("an engine has blocks, and 32 bits name them", field="blocks", blocks=hello.blocks)
    if not 1 <= hello.ranks <= MAX_RANKS:
        raise RequestError("an engine has ranks", field="ranks", ranks=hello.ranks, limit=MAX_RANKS)
    _check_groups(hello.groups, profile.block_tokens)
    _check_identity(hello, profile)


def kv_groups(groups: Iterable[Group]) -> tuple[KvGroup, ...]:
    """Groups of a hello that passed its check."""
    return tuple(
        KvGroup(
            group=GroupId(group.group),
            kind=GroupKind(group.kind),
            engine_block_tokens=group.engine_block_tokens,
            window_tokens=group.window_tokens,
            replicated=group.replicated,
        )
        for group in groups
    )


def check_attach(request: AttachRank) -> None:
    """Refuse a rank that can be none, whatever its engine is.

    Raises:
        UnsupportedVersionError, RequestError, LayoutMismatchError
    """
    if request.version != PROTOCOL_VERSION:
        raise UnsupportedVersionError(theirs=request.version, ours=PROTOCOL_VERSION)
    _check_who(request.engine, request.dp_rank, request.life)
    if not 0 <= request.rank < MAX_RANKS:
        raise RequestError("no such rank", field="rank", rank=request.rank, limit=MAX_RANKS)
    if not 0 <= request.memory_bytes <= _MAX_MEMORY_BYTES:
        raise LayoutMismatchError(
            "no rank has so much memory",
            field="memory_bytes",
            engine=request.memory_bytes,
            limit_bytes=_MAX_MEMORY_BYTES,
        )
    if len(request.regions) > MAX_GROUPS or sum(map(len, request.regions)) > _MAX_REGIONS:
        raise LayoutMismatchError("too many regions", field="regions", limit=_MAX_REGIONS)


def check_rank(
    request: AttachRank,
    groups: Sequence[KvGroup],
    *,
    life: str,
    ranks: int,
    blocks: int,
    executor: Executor,
    has_memory: bool,
    profile: NodeProfile,
) -> None:
    """Refuse a rank whose memory does not fit its engine, or whose rows do not fit the slots of this node.

    Raises:
        UnavailableError: it belongs to another start of the engine, which may come or have been.
        RequestError, LayoutMismatchError
    """
    if request.life != life:
        raise UnavailableError("the rank belongs to another start of the engine", rank=request.rank, life=request.life)
    if request.rank >= ranks:
        raise RequestError("the engine has no such rank", field="rank", rank=request.rank, ranks=ranks)
    if has_memory is (executor is Executor.ENGINE):
        raise RequestError(
            "a rank brings one descriptor, its memory, except with executor engine, whose ranks keep it",
            field="descriptors",
            executor=executor.value,
        )
    if len(request.regions) != len(groups):
        raise LayoutMismatchError(
            "a rank names the regions of each group", field="regions", engine=len(request.regions), groups=len(groups)
        )
    for group, regions in zip(groups, request.regions, strict=True):
        if not regions:
            raise LayoutMismatchError("a group has regions", field="regions", group=group.group)
        for region in regions:
            _check_region(region, blocks, request.memory_bytes if has_memory else _MAX_MEMORY_BYTES)
        needed = row_bytes(group, [_region(region) for region in regions], ranks, profile.block_tokens)
        if needed > profile.block_bytes:
            raise LayoutMismatchError(
                "the rows of a group do not fit the slots of this node: raise node.block_bytes",
                field="block_bytes",
                group=group.group,
                needed_bytes=needed,
                node=profile.block_bytes,
            )


def check_alike(request: AttachRank, others: Iterable[AttachRank]) -> None:
    """Refuse a rank whose shards have another size than those of another rank: a row has equal shards.

    Raises:
        LayoutMismatchError: names the first such rank.
    """
    own = _page_bytes(request)
    for other in others:
        if _page_bytes(other) != own:
            raise LayoutMismatchError(
                "all ranks of an engine have pages of the same sizes",
                field="regions",
                rank=request.rank,
                other_rank=other.rank,
            )


# --- inside -------------------------------------------------------------------------------------------------------
def _check_who(engine: str, dp_rank: int, life: str) -> None:
    if not engine or len(engine) > _MAX_NAME or not engine.isprintable():
        raise RequestError("an engine has a printable name", field="engine", limit=_MAX_NAME)
    if len(life) > _MAX_NAME or not life.isprintable():
        raise RequestError("the start of an engine has a printable name", field="life", limit=_MAX_NAME)
    if not 0 <= dp_rank <= _MAX_DP_RANK:
        raise RequestError("no such data-parallel rank", field="dp_rank", dp_rank=dp_rank, limit=_MAX_DP_RANK)


def _check_groups(groups: Sequence[Group], block_tokens: int) -> None:
    if not 1 <= len(groups) <= MAX_GROUPS:
        raise RequestError("a model has KV groups", field="groups", groups=len(groups), limit=MAX_GROUPS)
    if [group.group for group in groups] != list(range(len(groups))):
        raise RequestError("groups are numbered from 0 without gaps", field="groups", given=len(groups))
    for group in groups:
        if group.kind not in set(GroupKind):
            raise UnsupportedOperationError(
                "no such kind of group", field="kind", group=group.group, given=group.kind, known=", ".join(GroupKind)
            )
        windowed = group.kind == GroupKind.SLIDING_WINDOW
        if windowed is not (group.window_tokens > 0) or group.window_tokens > _MAX_BLOCKS:
            raise RequestError(
                "a sliding window has a size, and nothing else has one", field="window_tokens", group=group.group
            )
    for kv_group in kv_groups(groups):
        pages = kv_group.pages_per_row(block_tokens)
        if pages > MAX_PAGES_PER_ROW:
            raise LayoutMismatchError(
                "a block has too many engine blocks",
                field="engine_block_tokens",
                group=kv_group.group,
                pages=pages,
                limit=MAX_PAGES_PER_ROW,
            )


def _check_identity(hello: Hello, profile: NodeProfile) -> None:
    identity = hello.identity
    if identity.block_tokens != profile.block_tokens:
        raise IdentityMismatchError(
            "engine and node differ", field="block_tokens", engine=identity.block_tokens, node=profile.block_tokens
        )
    if identity.block_bytes > profile.block_bytes:
        raise IdentityMismatchError(
            "blocks of the engine do not fit the slots of this node: raise node.block_bytes",
            field="block_bytes",
            engine=identity.block_bytes,
            node=profile.block_bytes,
        )
    _check_layout(hello, kv_groups(hello.groups))
    if not identity.hash_version or len(identity.hash_version) > _MAX_NAME or not identity.hash_version.isprintable():
        raise RequestError("the scheme of content keys has a printable name", field="hash_version", limit=_MAX_NAME)


def _check_layout(hello: Hello, groups: Sequence[KvGroup]) -> None:
    """The identity says how rows are laid out: engines that lay them out otherwise must never share blocks."""
    identity = hello.identity
    spec, tokens, shapes = group_spec(groups), common_block_tokens(groups), parallel_shapes(groups, hello.ranks)
    if identity.group_spec != spec:
        raise IdentityMismatchError(
            "the identity names other groups than the engine", field="group_spec", engine=identity.group_spec, node=spec
        )
    if identity.engine_block_tokens != tokens:
        raise IdentityMismatchError(
            "the identity names engine blocks of another size than the groups",
            field="engine_block_tokens",
            engine=identity.engine_block_tokens,
            node=tokens,
        )
    if identity.parallel_shape not in shapes:
        raise IdentityMismatchError(
            "the identity names another number of ranks than the engine",
            field="parallel_shape",
            engine=identity.parallel_shape,
            node=" or ".join(shapes),
        )


def _check_region(region: RegionInfo, blocks: int, memory_bytes: int) -> None:
    if region.page_bytes < 1 or region.offset_bytes < 0:
        raise LayoutMismatchError("a region has pages", field="regions", page_bytes=region.page_bytes)
    if region.stride_bytes < region.page_bytes:
        raise LayoutMismatchError("pages overlap", field="stride_bytes", engine=region.stride_bytes)
    end = region.offset_bytes + (blocks - 1) * region.stride_bytes + region.page_bytes
    if max(end, region.stride_bytes) > memory_bytes:  # of an engine with one block no end is bounded by the stride
        raise LayoutMismatchError(
            "a region ends behind the memory of its rank", field="regions", ends_at=end, memory_bytes=memory_bytes
        )


def _page_bytes(request: AttachRank) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(region.page_bytes for region in regions) for regions in request.regions)


def _region(region: RegionInfo) -> Region:
    return Region(region.offset_bytes, region.stride_bytes, region.page_bytes)
