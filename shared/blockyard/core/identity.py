"""Who a block belongs to: model identity (static) and sequence scope (per request), each with its digest.

Every field enters a digest as ``tag length value``, so two fields can never trade places and an absent value differs
from an empty one. Two nodes share blocks only when all of this is equal.
Invariants: digests are pure functions of the declared fields, and of all of them: a new field enters by itself, in the
order of declaration; no process seed, no built-in ``hash``.
Threading: frozen values.
"""

import hashlib
from dataclasses import dataclass, fields
from typing import Final

from blockyard.core.errors import RequestError
from blockyard.core.vocabulary import DEFAULT_TENANT, DIGEST_BYTES, IdentityDigest, TenantDigest
from blockyard.core.whole_numbers import require_bytes, require_kind

HASH_VERSION: Final = "blockyard-sha256-1"
"""Scheme of content keys; part of the identity, so a change of scheme can never alias old keys."""

_IDENTITY_MAGIC: Final = b"blockyard identity 1\0"
_SCOPE_MAGIC: Final = b"blockyard scope 1\0"
_TENANT_MAGIC: Final = b"blockyard tenant 1\0"


def tagged(tag: str, value: str | int | bytes) -> bytes:
    """Unambiguous encoding of one field: tag, kind, length, value.

    Raises:
        RequestError: a text that UTF-8 cannot express.
    """
    name = tag.encode()
    if isinstance(value, bytes):
        kind, body = b"b", value
    elif isinstance(value, int):
        kind, body = b"i", str(value).encode()
    else:
        kind, body = b"s", utf8(value, tag)
    return len(name).to_bytes(2, "little") + name + kind + len(body).to_bytes(8, "little") + body


def utf8(text: str, field: str) -> bytes:
    """A text as bytes; ``field`` says in the error which one.

    Raises:
        RequestError: half of a surrogate pair is in it.
    """
    require_kind(field, text, str)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RequestError("a text is not valid Unicode", field=field) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelIdentity:
    """Static facts that must be equal for two engines to share KV blocks."""

    model: str
    """Name or path of the model, as the operator names it."""
    weights_version: str = "main"
    config_digest: str = ""
    """Digest of the resolved model configuration, overrides and weight quantisation included."""
    kv_dtype: str = "bfloat16"
    scales_digest: str = ""
    """Digest of the KV quantisation scales; empty where there are none."""
    layout_fingerprint: str = ""
    """Attention page format and, on CPU, the instruction set."""
    engine_block_tokens: int = 16
    """Of several groups the part that their engine blocks have in common (``kv_groups.common_block_tokens``)."""
    block_tokens: int = 512
    """Tokens per Blockyard block: a multiple of ``engine_block_tokens``."""
    block_bytes: int = 131_072
    """Payload bytes of a block. An engine says how much it needs; a node puts the size of its slots here, since blocks
    of other sizes cannot be exchanged."""
    group_spec: str = "full"
    """See ``kv_groups.group_spec``."""
    parallel_shape: str = "tp1"
    """Number of ranks whose shards make up a row, or ``canonical``; see ``kv_groups.parallel_shapes``."""
    hash_version: str = HASH_VERSION
    purge_epoch: int = 0

    def digest(self) -> IdentityDigest:
        """SHA-256 over all fields, tagged by name (32 bytes).

        Raises:
            RequestError: a text that UTF-8 cannot express.
        """
        state = hashlib.sha256(_IDENTITY_MAGIC)
        for item in fields(self):
            state.update(tagged(item.name, getattr(self, item.name)))
        return IdentityDigest(state.digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class MultimodalRun:
    """Consecutive placeholder tokens that stand for one image, clip or sound."""

    first_token: int
    tokens: int
    content_digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceScope:
    """Per-request facts that enter the content key."""

    tenant: str = ""
    salt: str = ""
    lora: str = ""
    multimodal: tuple[MultimodalRun, ...] = ()

    def root(self, identity: IdentityDigest) -> bytes:
        """Start value of the chain for this scope under this identity (32 bytes).

        Multimodal runs are not part of it: they enter at the block they overlap.

        Raises:
            RequestError: the identity is no digest, or a text cannot be expressed in UTF-8.
        """
        require_bytes("identity digest", identity, DIGEST_BYTES)
        state = hashlib.sha256(_SCOPE_MAGIC + tagged("identity", identity))
        for item in fields(self):
            if item.name != "multimodal":
                require_kind(item.name, getattr(self, item.name), str)
                state.update(tagged(item.name, getattr(self, item.name)))
        return state.digest()

    def tenant_digest(self) -> TenantDigest:
        """First 16 bytes of SHA-256 of the tenant name; zero for the default tenant.

        Raises:
            RequestError: a name that UTF-8 cannot express.
        """
        if not self.tenant:
            return DEFAULT_TENANT
        return TenantDigest(hashlib.sha256(_TENANT_MAGIC + utf8(self.tenant, "tenant")).digest()[:16])
