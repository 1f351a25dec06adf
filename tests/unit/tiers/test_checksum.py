"""Copies and checksums agree, whatever the chunks."""

import numpy as np
import pytest
import xxhash

from blockyard.core.errors import BlockSizeMismatchError
from blockyard.testing.byte_patterns import pattern
from blockyard.tiers.checksum import COPY_CHUNK_BYTES, copy_and_hash, hash_pieces, payload_checksum, record_checksum


@pytest.mark.parametrize("size", [0, 1, 4096, COPY_CHUNK_BYTES, COPY_CHUNK_BYTES + 1, 3 * COPY_CHUNK_BYTES - 5])
def test_a_copy_has_the_bytes_and_the_checksum_of_its_source(size: int) -> None:
    source, destination = pattern(3, size), np.zeros(size, np.uint8)
    assert copy_and_hash(destination, source) == payload_checksum(source.data)
    assert np.array_equal(destination, source)


def test_the_checksum_is_xxh3_128_little_endian() -> None:
    assert payload_checksum(b"block") == xxhash.xxh3_128_digest(b"block")[::-1]


def test_copying_between_lengths_is_refused_and_writes_nothing() -> None:
    destination = np.zeros(4, np.uint8)
    with pytest.raises(BlockSizeMismatchError):
        copy_and_hash(destination, pattern(1, 5))
    assert not destination.any()


def test_a_record_checksum_does_not_depend_on_the_cut() -> None:
    assert record_checksum(b"ab", b"c") == record_checksum(b"abc") == xxhash.xxh3_64_intdigest(b"abc")


def test_the_checksum_of_pieces_is_that_of_the_whole() -> None:
    whole = pattern(4, 1_000)
    assert hash_pieces(iter((whole[:300], whole[300:300], whole[300:]))) == payload_checksum(whole.data)
