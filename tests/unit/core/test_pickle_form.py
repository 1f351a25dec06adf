"""Pickle written here: bytes that CPython's pickler made, frames, both ways to write a block, and what is refused."""

import hashlib
import pickletools
from enum import StrEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.errors import RequestError
from blockyard.core.pickle_form import BlockForms, Value, encode


class Word(StrEnum):
    """Texts that are one object each."""

    AGAIN = "again"
    OTHER = "other"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "80054e2e"),
        (7, "80054b072e"),
        ("", "80059504000000000000008c00942e"),
        ("ü\ud800", "80059509000000000000008c05c3bceda080942e"),
        (b"ab", "800595060000000000000043026162942e"),
        (
            (0, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -1, -(2**31) - 1, 2**63 - 1),
            "8005953500000000000000284b004bff4d00014dffff4a000001004affffff7f8a0500000080004affffffff8a05ffffff7fff"
            "8a08ffffffffffffff7f74942e",
        ),
        (
            ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
            "800595220000000000000028294b0185944b014b0286944b014b024b038794284b014b024b034b04749474942e",
        ),
        ((Word.AGAIN, "x", Word.AGAIN), "80059511000000000000008c05616761696e948c017894680087942e"),
    ],
)
def test_bytes_are_those_of_the_pickler(value: Value, expected: str) -> None:
    assert encode(value).hex() == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x" * 255, "39e66444c0c51183dd0c6e9f8dcab003515b9fd45be899718b0603b634432bfa"),
        ("x" * 256, "a9d11a4603748bd35a49a9115650cf425573129ec44c54a7a4083797d496b2e6"),
        (b"x" * 256, "e5ddcd198cec04cf13030f7b8bd40fbb43d5bd8d90809c78bc413ba01dc846ac"),
        (tuple(range(50_000)), "67b11c073a161a4160a613f68efaf5e12708530782a1859976e4e8b545f7aacd"),
        (
            (tuple((number,) for number in range(300)), Word.AGAIN, Word.AGAIN),
            "6604e01318a425d78b6af2174a4536a1d75d10788ea082e853d8e639daaf3250",
        ),
    ],
    ids=["255 bytes", "256 bytes", "256 bytes as bytes", "three frames", "number beyond a byte"],
)
def test_long_values_have_the_digest_of_the_pickler_s_bytes(value: Value, expected: str) -> None:
    assert hashlib.sha256(encode(value)).hexdigest() == expected


TOKENS = st.integers(0, 32).flatmap(lambda bits: st.integers(0, (1 << bits) - 1))
KEYS: list[Value] = [
    None,
    ((Word.AGAIN, "name", "path"),),
    ((Word.AGAIN, "image", -3), (Word.AGAIN, "clip", 2**40), (Word.OTHER, "salt")),
]


@given(st.lists(TOKENS, max_size=20), st.integers(1, 6), st.sampled_from(KEYS), st.binary(max_size=255))
def test_a_block_is_the_tuple_of_its_parts(tokens: list[int], size: int, keys: Value, parent: bytes) -> None:
    forms = BlockForms(np.array(tokens, np.uint32), size)
    for block in range(len(tokens) // size):
        inside = tuple(tokens[block * size : (block + 1) * size])
        assert forms.form(block, parent, keys) == encode((parent, inside, keys))


@pytest.mark.parametrize("token", [1, 2**8, 2**16, 2**31])
def test_a_block_of_several_frames_is_the_tuple_of_its_parts(token: int) -> None:
    size = 40_000
    tokens = np.full(2 * size, token, np.uint32)
    form = BlockForms(tokens, size).form(1, bytes(32), KEYS[2])
    assert form == encode((bytes(32), tuple(tokens[size:].tolist()), KEYS[2]))
    frames = [int(length or 0) for opcode, length, _ in pickletools.genops(form) if opcode.name == "FRAME"]
    assert len(frames) >= 2
    assert min(frames[:-1]) >= 2**16
    assert sum(frames) + 9 * len(frames) + 2 == len(form)


@pytest.mark.parametrize(
    "value",
    [
        ("same", "same"),
        (("same",), "same"),
        (Word.AGAIN, "again"),
        ("again", Word.AGAIN),
        (b"same", b"same"),
        ((1, 2), (1, 2)),
        (None, ((None,), (None,))),
    ],
    ids=repr,
)
def test_what_occurs_twice_is_refused_unless_it_is_one_object(value: Value) -> None:
    with pytest.raises(RequestError, match="equal"):
        encode(value)


@pytest.mark.parametrize("value", [True, 1.5, [1], {}, bytearray(b"x")], ids=repr)
def test_values_of_other_kinds_are_refused(value: object) -> None:
    with pytest.raises(RequestError, match="kind"):
        encode((value,))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["x" * 2**16, bytes(2**16), "ü" * 2**15], ids=["text", "bytes", "UTF-8"])
def test_what_stands_outside_of_frames_is_refused(value: Value) -> None:
    with pytest.raises(RequestError, match="64 KiB"):
        encode(value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1], ids=["large", "small"])
def test_integers_have_64_bits(value: int) -> None:
    with pytest.raises(RequestError, match="64 bits"):
        encode(value)
    inside = value - 1 if value > 0 else value + 1
    assert inside in [argument for _, argument, _ in pickletools.genops(encode(inside))]


def test_a_block_holds_at_least_one_token() -> None:
    with pytest.raises(RequestError):
        BlockForms(np.zeros(3, np.uint32), 0)
