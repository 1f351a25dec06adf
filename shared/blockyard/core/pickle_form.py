"""Python's pickle, protocol 5, byte for byte, of what block hashes are made of; it is written only, never read.

::

    form       PROTO 5, then the body in frames: FRAME, u64 length, content; a body of less than 4 bytes has no frame
    body       the value, then STOP
    integer    BININT1, BININT2, BININT or LONG1: the first that holds it
    text       SHORT_BINUNICODE or BINUNICODE, length, UTF-8 in which surrogates pass
    bytes      SHORT_BINBYTES or BINBYTES, length, content
    tuple      MARK, items, TUPLE; of one to three: items, TUPLE1 to TUPLE3; of none: EMPTY_TUPLE
    MEMOIZE    behind texts, bytes and tuples that are not empty; it numbers them
    BINGET     or LONG_BINGET with that number, in place of an object that has been written before

A frame ends before the first value that begins 64 KiB or more behind the frame's start. So does CPython; opcodes are
those of PEP 3154 and the standard library's ``pickletools``.
The form of a value depends on which of its parts are the same object. Members of a ``StrEnum`` stand for texts that are
one object wherever they occur. Everything else that occurs twice is refused.
Invariant: equal values have equal forms, and different values different ones.
Threading: ``encode`` is pure; ``BlockForms`` has a cache and belongs to one thread.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, final

import numpy as np
import numpy.typing as npt

from blockyard.core.errors import RequestError
from blockyard.core.tokens import block_bytes

Value = int | str | bytes | None | tuple["Value", ...]

_PROTO, _FRAME, _STOP, _MEMOIZE = b"\x80\x05", b"\x95", b".", b"\x94"
_NONE, _MARK, _EMPTY_TUPLE = b"N", b"(", b")"
_TUPLES: Final = (b"", b"\x85", b"\x86", b"\x87")
_TUPLE: Final = b"t"
_SHORT_TEXT, _TEXT, _SHORT_BYTES, _BYTES = b"\x8c", b"X", b"C", b"B"
_GET, _LONG_GET = b"h", b"j"
_INT1, _INT2, _INT4, _LONG1 = b"K", b"M", b"J", b"\x8a"

_FRAME_BYTES: Final = 64 * 1024
_SMALLEST_FRAME_BYTES: Final = 4
_BEFORE_KEYS: Final = 2
"""Parent and tokens, which have numbers before anything in the keys has one."""


def encode(value: Value) -> bytes:
    """Form of one value.

    Raises:
        RequestError: a value of another kind (a truth value is one), of 64 KiB, or that occurs twice.
    """
    writer = _Writer(0)
    writer.write(value)
    writer.end(_STOP)
    return _framed(writer.pieces)


@final
class BlockForms:
    """Forms of ``(parent, tokens of the block, keys)`` for the blocks of one sequence."""

    def __init__(self, tokens: npt.NDArray[np.uint32], block_tokens: int) -> None:
        """Write the tokens, all at once.

        Raises:
            RequestError: a block without tokens.
        """
        block_bytes(block_tokens)
        self._block_tokens = block_tokens
        self._content, self._places = encode_tokens(tokens)
        self._starts = self._places[::block_tokens].tolist()
        self._open, close = _around(block_tokens)
        self._close = close + _MEMOIZE
        self._keys: dict[Value, list[bytes]] = {}

    def form(self, block: int, parent: bytes, keys: Value) -> bytes:
        """Form of one whole block.

        Args:
            block: its position in the tokens.
            parent: hash of the block before it, of less than 256 bytes.
            keys: what the block has besides its tokens.

        Raises:
            RequestError: keys that have no form, as ``encode`` has it.
        """
        after = self._keys.get(keys) or self._after(keys)
        before = _SHORT_BYTES + len(parent).to_bytes(1, "little") + parent + _MEMOIZE
        inside = self._content[self._starts[block] : self._starts[block + 1]]
        body = b"".join((before, self._open, inside, self._close, *after))
        if len(body) < _FRAME_BYTES:
            return b"".join((_PROTO, _FRAME, len(body).to_bytes(8, "little"), body))
        first = block * self._block_tokens
        places = self._places[first : first + self._block_tokens + 1].tolist()
        items = [self._content[start:stop] for start, stop in zip(places, places[1:], strict=False)]
        items[-1] += self._close
        return _framed([before, self._open, *items, *after])

    def _after(self, keys: Value) -> list[bytes]:
        """Pieces of the keys and of the end."""
        writer = _Writer(_BEFORE_KEYS)
        writer.write(keys)
        writer.end(_TUPLES[3] + _MEMOIZE + _STOP)
        self._keys[keys] = writer.pieces
        return writer.pieces


def encode_tokens(tokens: npt.NDArray[np.uint32]) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Bytes of many integers one behind the other, and the places where each begins, the end included."""
    sizes = np.full(len(tokens), 2, np.int64)
    heads = np.full(len(tokens), _INT1[0], np.uint8)
    for limit, size, head in ((1 << 8, 3, _INT2), (1 << 16, 5, _INT4), (1 << 31, 7, _LONG1)):
        larger = tokens >= limit
        sizes[larger], heads[larger] = size, head[0]
    # Of every integer its head and as many bytes as the largest takes, of which the last ones are then left out.
    rows = np.zeros((len(tokens), 7), np.uint8)
    rows[:, 0] = heads
    rows[:, 1:5] = tokens.astype("<u4").view(np.uint8).reshape(-1, 4)
    # LONG1 says its length, and its highest bit is a sign.
    long = sizes == 7
    rows[long, 2:6] = rows[long, 1:5]
    rows[long, 1] = 5
    places = np.zeros(len(tokens) + 1, np.int64)
    np.cumsum(sizes, out=places[1:])
    return rows[np.arange(7) < sizes[:, None]].tobytes(), places


@final
class _Writer:
    """Pieces of one body; a frame may end before each of them and nowhere else."""

    def __init__(self, numbered: int) -> None:
        self.pieces: list[bytes] = []
        self._numbered = numbered
        self._texts: dict[str, tuple[str, int]] = {}
        self._others: set[bytes | tuple[Value, ...]] = set()

    def write(self, value: Value) -> None:
        if value is None:
            self.pieces.append(_NONE)
        elif isinstance(value, str):
            self._write_text(value)
        elif isinstance(value, bytes):
            self.pieces.append(_sized(_SHORT_BYTES, _BYTES, value))
            self._number(value)
        elif isinstance(value, tuple):
            self._write_tuple(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            self.pieces.append(_integer(value))
        else:
            raise RequestError("no form for a value of this kind", kind=type(value).__name__)

    def end(self, opcodes: bytes) -> None:
        """Write behind the last value what begins no value."""
        self.pieces[-1] += opcodes

    def _write_text(self, text: str) -> None:
        if text in self._texts:
            first, number = self._texts[text]
            if first is not text or not isinstance(text, StrEnum):
                raise RequestError("two texts are equal, so their pickle depends on more than their values")
            self.pieces.append(_GET + bytes((number,)) if number < 256 else _LONG_GET + number.to_bytes(4, "little"))
            return
        self.pieces.append(_sized(_SHORT_TEXT, _TEXT, text.encode("utf-8", "surrogatepass")) + _MEMOIZE)
        self._texts[text] = text, self._numbered
        self._numbered += 1

    def _write_tuple(self, items: tuple[Value, ...]) -> None:
        if not items:
            self.pieces.append(_EMPTY_TUPLE)
            return
        before, after = _around(len(items))
        if before:
            self.pieces.append(before)
        for item in items:
            self.write(item)
        self.end(after)
        self._number(items)

    def _number(self, value: bytes | tuple[Value, ...]) -> None:
        if value in self._others:
            raise RequestError("two parts are equal, so their pickle depends on more than their values")
        self._others.add(value)
        self.end(_MEMOIZE)
        self._numbered += 1


def _around(items: int) -> tuple[bytes, bytes]:
    """Opcodes before and behind the items of a tuple that has some."""
    return (_MARK, _TUPLE) if items >= len(_TUPLES) else (b"", _TUPLES[items])


def _sized(short: bytes, long: bytes, content: bytes) -> bytes:
    if len(content) >= _FRAME_BYTES:
        raise RequestError("a text of 64 KiB stands outside of frames and has no form here", length=len(content))
    if len(content) < 256:
        return short + len(content).to_bytes(1, "little") + content
    return long + len(content).to_bytes(4, "little") + content


def _integer(value: int) -> bytes:
    for opcode, size in ((_INT1, 1), (_INT2, 2)):
        if 0 <= value < 1 << 8 * size:
            return opcode + value.to_bytes(size, "little")
    if -(1 << 31) <= value < 1 << 31:
        return _INT4 + value.to_bytes(4, "little", signed=True)
    size = (value if value >= 0 else -1 - value).bit_length() // 8 + 1
    if size > 8:
        raise RequestError("integers have 64 bits")
    return _LONG1 + bytes((size,)) + value.to_bytes(size, "little", signed=True)


def _framed(pieces: Sequence[bytes]) -> bytes:
    body = b"".join(pieces)
    if len(body) < _SMALLEST_FRAME_BYTES:
        return _PROTO + body
    frames, start, place = [_PROTO], 0, 0
    for piece in pieces:
        if place - start >= _FRAME_BYTES:
            frames += (_frame_head(place - start), body[start:place])
            start = place
        place += len(piece)
    frames += (_frame_head(place - start), body[start:])
    return b"".join(frames)


def _frame_head(length: int) -> bytes:
    return _FRAME + length.to_bytes(8, "little")
