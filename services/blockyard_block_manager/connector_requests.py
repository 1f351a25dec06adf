"""Requests of engines as values of the core: sizes and columns checked before anything is decided.

Pure functions. Threading: no state.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from blockyard.core.block_name import BlockName, names_of
from blockyard.core.chain_run import ChainRun
from blockyard.core.errors import RequestError, TooManyKeysError
from blockyard.core.events import BlockScope
from blockyard.core.kv_groups import NO_PAGE
from blockyard.core.vocabulary import DIGEST_BYTES, ContentKey, EngineBlockId, GroupId, Guard, RequestId, TenantDigest
from blockyard.wire.codec import MAX_KEYS_PER_CALL, MAX_PAGES_PER_CALL
from blockyard.wire.connector_channel import Run
from blockyard_block_manager.engine_checks import MAX_GROUPS
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.g1_set import G1Row

MAX_POSITION: Final = 2**32 - 1
_MAX_REQUEST_NAME: Final = 256
_MAX_TTL_MS: Final = 600_000
_TENANT_BYTES: Final = 16


def names_in(run: Run) -> tuple[BlockName, ...]:
    """Names of the blocks of a run.

    Raises:
        TooManyKeysError: more than one call may name.
        RequestError: the columns are no run, or a block is named twice.
    """
    count = len(run.digests) // DIGEST_BYTES
    if count > MAX_KEYS_PER_CALL:
        raise TooManyKeysError(keys=count, limit=MAX_KEYS_PER_CALL)
    if run.first_position + count > MAX_POSITION:
        raise RequestError("a position has 32 bits", field="first_position", limit=MAX_POSITION)
    names = names_of(ChainRun(run.digests, run.first_position, ContentKey(run.parent)))
    if len({name.key for name in names}) != len(names):
        raise RequestError("a run names no block twice", field="digests")
    return names


def scope_of(session: EngineSession, tenant: bytes, block_tokens: int, group: int = 0) -> BlockScope:
    """Scope of a request: the session's model, the request's tenant, one group of the engine.

    Raises:
        RequestError: the tenant is no digest, or the engine has no such group.
    """
    if len(tenant) != _TENANT_BYTES:
        raise RequestError("a tenant digest has 16 bytes", field="tenant", length=len(tenant))
    number = session.group(group).group
    return BlockScope(session.identity, TenantDigest(tenant), group=number, block_tokens=block_tokens)


def groups_in(session: EngineSession, groups: Sequence[int], rows: int) -> tuple[GroupId, ...]:
    """Groups that a request names, for ``rows`` blocks in each of them.

    Raises:
        RequestError: none, one twice, or one that the engine does not have.
        TooManyKeysError: more blocks in all groups together than one call may name.
    """
    if not 1 <= len(groups) <= MAX_GROUPS or len(set(groups)) != len(groups):
        raise RequestError("a request names groups, none twice", field="groups", groups=len(groups))
    if rows * len(groups) > MAX_KEYS_PER_CALL:
        raise TooManyKeysError(keys=rows * len(groups), limit=MAX_KEYS_PER_CALL)
    return tuple(session.group(group).group for group in groups)


def engine_blocks(session: EngineSession, column: bytes) -> tuple[EngineBlockId, ...]:
    """Engine blocks of an engine.

    Raises:
        RequestError: the column is cut, or a block is outside of the engine's memory.
    """
    blocks = _column(column, "<u4", "blocks")
    if blocks and max(blocks) >= session.blocks:
        raise RequestError("no such block in the engine's memory", field="blocks", block=max(blocks))
    return tuple(EngineBlockId(block) for block in blocks)


def pages_of(
    session: EngineSession, group: GroupId, rows: int, pages: bytes, guards: bytes, *, gaps: bool
) -> tuple[tuple[EngineBlockId, ...], tuple[Guard, ...]]:
    """Pages and their guards, those of each row of a run side by side; with ``gaps`` a page may be ``NO_PAGE``.

    Raises:
        RequestError: the columns do not fit the rows, name a page twice, or one that the engine does not have.
    """
    ids = _column(pages, "<u4", "pages")
    values = _column(guards, "<u8", "guards")
    per_row = session.pages_per_row[group]
    if len(ids) != rows * per_row or len(values) != len(ids):
        raise RequestError(
            "as many pages per row as the group has, and a guard for each",
            field="pages",
            rows=rows,
            per_row=per_row,
            pages=len(ids),
            guards=len(values),
        )
    if len(ids) > MAX_PAGES_PER_CALL:
        raise TooManyKeysError("too many pages in one call", pages=len(ids), limit=MAX_PAGES_PER_CALL)
    named = [page for page in ids if page != NO_PAGE] if gaps else ids
    if named and max(named) >= session.blocks:
        raise RequestError("no such page in the engine's memory", field="pages", block=max(named))
    if len(set(named)) != len(named):
        raise RequestError("a call names no page twice", field="pages")
    return tuple(EngineBlockId(page) for page in ids), tuple(Guard(value) for value in values)


def g1_rows(
    scope: BlockScope, names: Sequence[BlockName], pages: Sequence[EngineBlockId], guards: Sequence[Guard]
) -> list[G1Row]:
    """Rows of an engine's G1 set."""
    per_row = len(pages) // len(names) if names else 0
    return [
        G1Row(
            tuple(pages[index * per_row : (index + 1) * per_row]),
            tuple(guards[index * per_row : (index + 1) * per_row]),
            name,
            scope,
        )
        for index, name in enumerate(names)
    ]


def _column(data: bytes, kind: str, field: str) -> list[int]:
    width = np.dtype(kind).itemsize
    if len(data) % width:
        raise RequestError("a column is cut", field=field, length=len(data))
    values: list[int] = np.frombuffer(data, dtype=kind).tolist()
    return values


def request_id(name: str) -> RequestId:
    """Name of a request of an engine; raises ``RequestError`` where it is none."""
    if not name or len(name) > _MAX_REQUEST_NAME:
        raise RequestError("a request has a name", field="request", limit=_MAX_REQUEST_NAME)
    return RequestId(name)


def ttl(ttl_ms: int) -> int:
    """A time to live in milliseconds; raises ``RequestError`` where it is none."""
    if not 1 <= ttl_ms <= _MAX_TTL_MS:
        raise RequestError("a time to live is positive and bounded", field="ttl_ms", limit=_MAX_TTL_MS)
    return ttl_ms
