"""Lineage hashes: forms, text and refusals. The values themselves stand in the golden vectors."""

import pytest

from blockyard.core.errors import RequestError
from blockyard.core.kvbm_hashing import KvbmVersion, block_hashes, sequence_hashes
from blockyard.core.lineage_hash import PositionalLineageHash, lineage_hashes, positional_sequence_hash

CURRENT, PARENT = 0x1111222233334444, 0x5555666677778888


@pytest.mark.parametrize("position", [0, 1, 255, 256, 65_535, 65_536, 2**24 - 1])
def test_a_lineage_hash_survives_its_wire_form(position: int) -> None:
    value = PositionalLineageHash.of(position, CURRENT, PARENT if position else None)
    data = value.to_bytes()
    assert len(data) == 16
    assert int.from_bytes(data, "big") == int(value)
    assert PositionalLineageHash.from_bytes(data) == value


def test_a_child_holds_the_low_bits_of_its_parent_as_wide_as_its_own_form_allows() -> None:
    for position, bits in ((255, 54), (256, 46), (65_536, 38)):
        parent = PositionalLineageHash.of(position - 1, PARENT, CURRENT)
        child = parent.extend(CURRENT)
        assert child.parent_fragment == PARENT & ((1 << bits) - 1)
        assert child == PositionalLineageHash.of(position, CURRENT, PARENT)


def test_lineage_hashes_of_a_suffix_continue_those_of_its_prefix() -> None:
    sequence = sequence_hashes(block_hashes(range(1, 25), 4, 1337), KvbmVersion.V2, 1337)
    whole = lineage_hashes(sequence)
    assert whole[2:] == lineage_hashes(sequence[2:], first_position=2, parent=sequence[1])
    assert whole[0].extend(sequence[1]) == whole[1]


def test_lineage_hashes_are_ordered_by_position_then_value() -> None:
    low, high = PositionalLineageHash.of(1, 2, 9), PositionalLineageHash.of(2, 1, 9)
    assert sorted([high, low, PositionalLineageHash.of(1, 1, 9)]) == [PositionalLineageHash.of(1, 1, 9), low, high]


def test_the_text_of_a_root_has_no_parent_part() -> None:
    root = PositionalLineageHash.of(0, 14643705804678351452)
    assert str(root) == "0:azWbh91idkf"
    assert str(root.extend(4945711292740353085)) == "1:CUrLYDFnmBa:13A3sGnbCSf"
    assert str(PositionalLineageHash.of(0, 0)) == "0:11111111"
    assert str(PositionalLineageHash.of(0, 57)) == "0:1111111z"


def test_siblings_that_share_position_and_fragment_differ_as_a_whole() -> None:
    first, second = PositionalLineageHash.of(70_000, 1, PARENT), PositionalLineageHash.of(70_000, 2, PARENT + 2**38)
    assert first.parent_fragment == second.parent_fragment
    assert first != second


@pytest.mark.parametrize("position", [-1, 2**24])
def test_positions_beyond_the_widest_form_are_refused(position: int) -> None:
    with pytest.raises(RequestError):
        PositionalLineageHash.of(position, CURRENT, PARENT)


@pytest.mark.parametrize(
    "data", [bytes(15), b"\xff" * 16, (1 << 126).to_bytes(16, "big")], ids=["length", "mode", "form"]
)
def test_bytes_that_are_no_lineage_hash_are_refused(data: bytes) -> None:
    with pytest.raises(RequestError):
        PositionalLineageHash.from_bytes(data)


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(RequestError):
        PositionalLineageHash(0, 2**64)
    with pytest.raises(RequestError):
        PositionalLineageHash(0, 1, 2**54)


def test_the_older_positional_hash_keeps_the_sequence_hash_in_its_low_half() -> None:
    for position, mode, bits in ((255, 0, 54), (256, 1, 46), (65_536, 2, 38), (2**24, 3, 31)):
        value = positional_sequence_hash(position, CURRENT, PARENT)
        assert value & (2**64 - 1) == CURRENT
        assert value >> 126 == mode
        assert value >> 64 & ((1 << bits) - 1) == PARENT & ((1 << bits) - 1)
        assert value >> (64 + bits) & ((1 << (62 - bits)) - 1) == position
    with pytest.raises(RequestError):
        positional_sequence_hash(2**31, CURRENT, PARENT)


@pytest.mark.parametrize("value", [-1, 2**64])
def test_hashes_beyond_64_bits_are_refused(value: int) -> None:
    for call in (
        lambda: PositionalLineageHash.of(1, value, PARENT),
        lambda: PositionalLineageHash.of(1, CURRENT, value),
        lambda: PositionalLineageHash.of(1, CURRENT).extend(value),
        lambda: lineage_hashes([1, value]),
        lambda: positional_sequence_hash(1, value, PARENT),
        lambda: positional_sequence_hash(1, CURRENT, value),
    ):
        with pytest.raises(RequestError):
            call()


def test_a_chain_longer_than_the_widest_form_is_refused() -> None:
    assert len(lineage_hashes([1], first_position=2**24 - 1, parent=1)) == 1
    with pytest.raises(RequestError):
        lineage_hashes([1, 2], first_position=2**24 - 1, parent=1)
    with pytest.raises(RequestError):
        PositionalLineageHash.of(2**24 - 1, CURRENT, PARENT).extend(CURRENT)
    with pytest.raises(RequestError):
        positional_sequence_hash(-1, CURRENT, PARENT)
