"""msgpack encoding of all messages: bounded before decoding, typed errors on anything malformed.

Every message is a msgspec struct encoded as a map, so that a peer tolerates fields it does not know. Decoders are made
once per type. Threading: encoders and decoders of msgspec may be shared by threads.
"""

from typing import Final, Generic, TypeVar

import msgspec

from blockyard.core.errors import FrameTooLargeError, MalformedFrameError

Message = TypeVar("Message")

PROTOCOL_VERSION: Final = 2
MAX_FRAME_BYTES: Final = 8 * 1024 * 1024
MAX_KEYS_PER_CALL: Final = 4_096
"""Most blocks in one call, of all groups together."""
MAX_PAGES_PER_CALL: Final = 65_536
"""Most pages of engine memory in one call or job: a million tokens in engine blocks of 16."""
MAX_DECISIONS_PER_CALL: Final = 1_024
_MAX_REASON: Final = 200

_encoder: Final = msgspec.msgpack.Encoder()


def encode(message: object) -> bytes:
    """Bytes of one message."""
    return _encoder.encode(message)


class BoundedDecoder(Generic[Message]):
    """Decoder of one message type that refuses oversized and malformed input."""

    def __init__(self, kind: object, max_bytes: int = MAX_FRAME_BYTES) -> None:
        """Decode ``kind``, a struct type or a union of tagged struct types."""
        self._decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(kind)
        self._max_bytes = max_bytes

    def decode(self, data: bytes | bytearray | memoryview | msgspec.Raw) -> Message:
        """Decode one message.

        Raises:
            FrameTooLargeError: before decoding, where the input is longer than the bound.
            MalformedFrameError: where it is no message of this type.
        """
        size = memoryview(data).nbytes
        if size > self._max_bytes:
            raise FrameTooLargeError("message refused before decoding", bytes=size, limit=self._max_bytes)
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
            # The reason quotes what was sent, which may be megabytes.
            raise MalformedFrameError(str(error)[:_MAX_REASON]) from error
