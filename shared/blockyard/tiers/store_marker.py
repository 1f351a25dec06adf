"""The marker object of a store: ``<prefix>/store.json`` names the store and fixes the geometry of its packs.

Two nodes share packs only if they cut chains at the same places, so the wanted size of a pack is a fact of the store,
written once by whoever comes first. The store's id also names the prefix index that describes it: an index of another
store is recognised and not used.
Threading: one event loop; the functions keep no state.
"""

import secrets
from dataclasses import dataclass
from typing import Final

import msgspec

from blockyard.core.errors import ForeignFileError, ObjectNotFoundError
from blockyard.tiers.object_store import NO_BUCKET, ObjectStore

STORE_FORMAT: Final = 1
_MAX_BYTES: Final = 4_096
_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class StoreMarker:
    """What a store says about itself."""

    store_id: bytes
    target_bytes: int
    """Wanted size of a pack."""


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    store_id: str
    target_bytes: int


def marker_key(prefix: str) -> str:
    """Object key of the marker."""
    return f"{prefix}/store.json"


def encode_marker(marker: StoreMarker) -> bytes:
    """The JSON text of a marker."""
    document = _Document(format=STORE_FORMAT, store_id=marker.store_id.hex(), target_bytes=marker.target_bytes)
    return msgspec.json.encode(document)


def decode_marker(data: bytes | memoryview) -> StoreMarker:
    """Read a marker.

    Raises:
        ForeignFileError: it is none, or one of a format that this version does not know.
    """
    try:
        document = msgspec.json.decode(data, type=_Document)
        store_id = bytes.fromhex(document.store_id)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ForeignFileError("the marker of the store cannot be read", reason=str(error)) from None
    if document.format != STORE_FORMAT or len(store_id) != _ID_BYTES or document.target_bytes < 1:
        raise ForeignFileError("the marker of the store has another format", format=document.format)
    return StoreMarker(store_id, document.target_bytes)


async def read_marker(store: ObjectStore, prefix: str) -> StoreMarker:
    """Read the marker of a store.

    Raises:
        ObjectNotFoundError: the store has none.
        ForeignFileError: see ``decode_marker``.
        UnavailableError: no answer was had.
    """
    return decode_marker((await store.get_range(marker_key(prefix), 0, _MAX_BYTES)).data)


async def open_marker(store: ObjectStore, prefix: str, target_bytes: int) -> StoreMarker:
    """Read the marker; write one where there is none. Whoever writes first decides.

    Raises:
        ObjectNotFoundError: there is no bucket.
        ForeignFileError: see ``decode_marker``.
        UnavailableError: no answer was had.
    """
    try:
        return await read_marker(store, prefix)
    except ObjectNotFoundError as error:
        if error.fields.get("reason") == NO_BUCKET:
            raise
        marker = StoreMarker(secrets.token_bytes(_ID_BYTES), target_bytes)
        await store.put_if_absent(marker_key(prefix), encode_marker(marker))
    return await read_marker(store, prefix)
