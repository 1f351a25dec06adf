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
from blockyard.core.vocabulary import DIGEST_BYTES, ContentKey, EngineBlockId, Guard, TenantDigest
from blockyard.wire.codec import MAX_KEYS_PER_CALL
from blockyard.wire.connector_channel import Run
from blockyard_block_manager.engine_sessions import EngineSession
from blockyard_block_manager.g1_set import G1Block

MAX_POSITION: Final = 2**32 - 1
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


def scope_of(session: EngineSession, tenant: bytes, block_tokens: int) -> BlockScope:
    """Scope of a request: the session's model and the request's tenant.

    Raises:
        RequestError: the tenant is no digest.
    """
    if len(tenant) != _TENANT_BYTES:
        raise RequestError("a tenant digest has 16 bytes", field="tenant", length=len(tenant))
    return BlockScope(session.identity, TenantDigest(tenant), block_tokens=block_tokens)


def engine_blocks(session: EngineSession, column: bytes) -> tuple[EngineBlockId, ...]:
    """Memory blocks of an engine.

    Raises:
        RequestError: the column is cut, or a block is outside of the engine's memory.
    """
    blocks = _column(column, "<u4", "blocks")
    if blocks and max(blocks) >= session.blocks:
        raise RequestError("no such block in the engine's memory", field="blocks", block=max(blocks))
    return tuple(EngineBlockId(block) for block in blocks)


def places(
    session: EngineSession, count: int, blocks: bytes, guards: bytes
) -> tuple[tuple[EngineBlockId, ...], tuple[Guard, ...]]:
    """Memory blocks and their guards, one of each per block of a run.

    Raises:
        RequestError: the columns do not fit the run, or name a block twice.
    """
    ids = engine_blocks(session, blocks)
    values = tuple(Guard(value) for value in _column(guards, "<u8", "guards"))
    if len(ids) != count or len(values) != count:
        raise RequestError("one block and one guard per key", keys=count, blocks=len(ids), guards=len(values))
    if len(set(ids)) != len(ids):
        raise RequestError("a call names no memory block twice", field="blocks")
    return ids, values


def g1_blocks(
    scope: BlockScope, names: Sequence[BlockName], ids: Sequence[EngineBlockId], guards: Sequence[Guard]
) -> list[G1Block]:
    """Entries of an engine's G1 set."""
    return [G1Block(block, guard, name, scope) for block, guard, name in zip(ids, guards, names, strict=True)]


def _column(data: bytes, kind: str, field: str) -> list[int]:
    width = np.dtype(kind).itemsize
    if len(data) % width:
        raise RequestError("a column is cut", field=field, length=len(data))
    values: list[int] = np.frombuffer(data, dtype=kind).tolist()
    return values
