"""Server of a local channel, met by proper clients and by raw peers."""

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from blockyard.core.errors import (
    ConfigurationError,
    ForeignFileError,
    FrameTooLargeError,
    MalformedFrameError,
    OutOfBlocksError,
    StartupError,
    UnsupportedVersionError,
)
from blockyard.runtime.rpc.session import RpcSession
from blockyard.testing.rpc_peer import (
    WAIT_SECONDS,
    Ask,
    Request,
    Server,
    Told,
    ask,
    client_of,
    echo,
    raw_peer,
    until,
)
from blockyard.wire.codec import MAX_FRAME_BYTES, PROTOCOL_VERSION, encode
from blockyard.wire.frame import LENGTH_BYTES, FrameKind, encode_frame


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.sock"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def exists(path: Path) -> bool:
    return path.exists()


# --- socket -------------------------------------------------------------------------------------------------------
async def test_the_socket_is_for_its_user_only_and_goes_with_the_server(path: Path) -> None:
    async with Server(path, Request, echo):
        assert mode_of(path) == 0o600
    assert not exists(path)


async def test_a_stale_socket_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(os.fspath(path))
    async with Server(path, Request, echo), client_of(path) as client:
        assert await client.call(Ask(1), timeout_seconds=1) == Told(1)


@pytest.fixture
def precious(path: Path) -> Path:
    path.write_text("precious")
    return path


async def test_a_file_in_the_place_of_the_socket_is_left_alone(precious: Path) -> None:
    with pytest.raises(ForeignFileError):
        async with Server(precious, Request, echo):
            pass
    assert exists(precious)


async def test_a_too_long_path_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"node\.folder"):
        async with Server(tmp_path / ("x" * 100), Request, echo):
            pass


async def test_a_missing_folder_is_a_start_error(tmp_path: Path) -> None:
    with pytest.raises(StartupError):
        async with Server(tmp_path / "missing" / "c.sock", Request, echo):
            pass


# --- requests -----------------------------------------------------------------------------------------------------
async def test_many_requests_in_one_read_are_all_answered(path: Path) -> None:
    async with Server(path, Request, echo), raw_peer(path) as peer:
        await peer.send(b"".join(ask(call, call * 10) for call in range(1, 51)))
        frames = [await peer.receive() for _ in range(50)]
        assert sorted(frame.call for frame in frames if frame is not None) == list(range(1, 51))


async def test_a_request_in_single_bytes_is_answered(path: Path) -> None:
    async with Server(path, Request, echo), raw_peer(path) as peer:
        for byte in ask(3, 1):
            await peer.send(bytes([byte]))
            await asyncio.sleep(0)
        frame = await peer.receive()
        assert frame is not None
        assert (frame.kind, frame.call) == (FrameKind.REPLY, 3)


async def test_a_request_as_large_as_allowed_goes_through(path: Path) -> None:
    data = bytes(MAX_FRAME_BYTES - 100)
    async with Server(path, Request, echo), client_of(path) as client:
        assert (await client.call(Ask(1, data), timeout_seconds=WAIT_SECONDS)).data == data


async def test_handlers_start_in_order_and_answer_when_they_are_done(path: Path) -> None:
    started: list[int] = []
    gates = {number: asyncio.Event() for number in range(3)}

    async def gated(_: RpcSession, request: Request, __: list[int]) -> Told:
        assert isinstance(request, Ask)
        started.append(request.number)
        await gates[request.number].wait()
        return Told(request.number)

    async with Server(path, Request, gated), client_of(path) as client:
        calls = [asyncio.create_task(client.call(Ask(number), timeout_seconds=WAIT_SECONDS)) for number in range(3)]
        await until(lambda: len(started) == 3)
        for number in (2, 0, 1):
            gates[number].set()
            assert await calls[number] == Told(number)
    assert started == [0, 1, 2]


async def test_a_typed_error_of_a_handler_reaches_its_caller(path: Path) -> None:
    async def refuse(_: RpcSession, __: Request, ___: list[int]) -> Told:
        raise OutOfBlocksError("none left", tier="g2", asked=4)

    async with Server(path, Request, refuse), client_of(path) as client:
        for _ in range(2):
            with pytest.raises(OutOfBlocksError, match="none left") as caught:
                await client.call(Ask(1), timeout_seconds=1)
            assert caught.value.fields == {"tier": "g2", "asked": 4}


async def test_a_bug_in_a_handler_ends_the_service(path: Path) -> None:
    async def broken(_: RpcSession, __: Request, ___: list[int]) -> Told:
        raise KeyError("a bug")

    async def serve() -> None:
        async with Server(path, Request, broken), raw_peer(path) as peer:
            await peer.send(ask(1))
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await serve()
    assert caught.group_contains(KeyError)
    assert not exists(path)


async def test_a_reply_too_large_for_a_frame_becomes_an_error(path: Path) -> None:
    async def large(_: RpcSession, __: Request, ___: list[int]) -> Told:
        return Told(1, bytes(MAX_FRAME_BYTES))

    async with Server(path, Request, large), client_of(path) as client:
        with pytest.raises(FrameTooLargeError):
            await client.call(Ask(1), timeout_seconds=WAIT_SECONDS)
        assert client.ended is None


# --- bytes that are no request ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("data", "code"),
    [
        ((MAX_FRAME_BYTES + 1).to_bytes(LENGTH_BYTES, "little"), FrameTooLargeError.code),
        (b"GET / HTTP/1.1\r\n\r\n", FrameTooLargeError.code),
        (bytes(LENGTH_BYTES), MalformedFrameError.code),
        ((3).to_bytes(LENGTH_BYTES, "little") + b"abc", MalformedFrameError.code),
        (encode_frame(FrameKind.REPLY, 1, Told(1)), MalformedFrameError.code),
        (encode_frame(FrameKind.REQUEST, 0, Ask(1)), MalformedFrameError.code),
        (encode_frame(FrameKind.REQUEST, 1, Ask(1), descriptors=1), MalformedFrameError.code),
        (
            (lambda body: len(body).to_bytes(LENGTH_BYTES, "little") + body)(
                encode([PROTOCOL_VERSION + 1, 0, 1, None])
            ),
            UnsupportedVersionError.code,
        ),
    ],
    ids=["too large", "http", "empty", "garbage", "reply", "no number", "descriptor missing", "version"],
)
async def test_bytes_that_are_no_request_are_named_and_end_that_session_only(
    path: Path, data: bytes, code: str
) -> None:
    async with Server(path, Request, echo), client_of(path) as bystander, raw_peer(path) as peer:
        await peer.send(data)
        assert (await peer.problem()).code == code
        assert await peer.receive() is None
        assert await bystander.call(Ask(2), timeout_seconds=1) == Told(2)


@pytest.mark.parametrize("body", [{"type": "unknown"}, {"type": "ask"}, "text", None], ids=str)
async def test_a_body_that_is_no_request_fails_that_call_only(path: Path, body: object) -> None:
    async with Server(path, Request, echo), raw_peer(path) as peer:
        await peer.send(encode_frame(FrameKind.REQUEST, 8, body) + ask(9, 1))
        refused, answered = await peer.receive(), await peer.receive()
        assert refused is not None
        assert answered is not None
        assert (refused.kind, refused.call) == (FrameKind.ERROR, 8)
        assert (answered.kind, answered.call) == (FrameKind.REPLY, 9)
