"""The demo engine as a process: an engine without a model that checks every byte it is given.

It takes one JSON command per line and answers with JSON events: ``replay`` a range of the trace, ``probe`` one block by
key, ``reset`` the own cache, ``stats``, ``quit``. Every command is answered by exactly one ``done`` or ``error`` event;
``replay`` also reports progress.

Commands come from stdin, and the end of input is ``quit``. With ``--listen`` they come over TCP instead, from one
controller at a time; the engine outlives its controllers. The port opens when the engine is connected to its node. With
``--replay`` it replays the trace by itself, again and again, until a controller makes it replay, probe or reset: then
its own replay stops for good. With either, the engine waits for its block-manager as long as it takes, tells every few
seconds on stderr how it goes, and ends on SIGTERM; without, it waits half a minute.

A request waits until the engine's memory has room for all its blocks. So little memory costs speed only, as long as the
longest request of the trace fits into it; less is refused.
"""

import argparse
import asyncio
import math
import mmap
import signal
import sys
from pathlib import Path
from typing import BinaryIO, Final

from blockyard.connectors.client import BlockyardClient
from blockyard.connectors.engine_memory import EngineMemory
from blockyard.connectors.mock.command_loop import CommandLoop, lines_of
from blockyard.connectors.mock.engine import MockEngine
from blockyard.connectors.mock.engine_service import EngineService, ListenAddress, OwnReplay, wait_for_node
from blockyard.connectors.mock.request_traces import traces_at_ratio
from blockyard.connectors.mock.trace import TRACE_BLOCK_TOKENS, load_trace
from blockyard.connectors.mock.trace_replay import TraceReplay
from blockyard.core.errors import BlockyardError
from blockyard.core.identity import ModelIdentity
from blockyard.core.vocabulary import EngineId

_CONNECT_SECONDS: Final = 30.0
_MOST_DIGITS: Final = 18
"""What has more of them is beyond every memory, and beyond what the system can be asked for."""
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


def run_engine() -> int:
    """Run until told to end; 0 on a clean end, 1 when the node or the system refused something, 2 for wrong usage."""
    options = _options()
    try:
        if options.listen is not None or options.replay:
            asyncio.run(_serve(options))
        else:
            # Both unbuffered: nothing waits in a thread, and nothing is left to be written, when the other end is gone.
            with (
                open(0, "rb", buffering=0, closefd=False) as commands,
                open(1, "wb", buffering=0, closefd=False) as events,
            ):
                asyncio.run(_obey(options, commands, events))
    except BlockyardError as error:
        sys.stderr.write(f"blockyard demo engine: {error}\n")
        return 1
    except (OSError, OverflowError) as error:
        sys.stderr.write(f"blockyard demo engine: the system refused a call: {error}\n")
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="blockyard-demo-engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--socket", type=Path, required=True, help="connector socket of the node's block-manager")
    parser.add_argument("--name", required=True, help="engine id")
    parser.add_argument(
        "--blocks",
        type=_blocks,
        default=192,
        help="blocks in the engine's memory; requests wait for room (default: 192)",
    )
    parser.add_argument(
        "--block-bytes", type=_block_bytes, default=131_072, help="bytes per block, whole pages (default: 131072)"
    )
    parser.add_argument("--model", default="demo-model", help="model name in the identity (default: demo-model)")
    parser.add_argument(
        "--listen",
        type=_address,
        metavar="HOST:PORT",
        help="take commands over TCP; whoever reaches the port commands the engine, so let only this machine reach it",
    )
    parser.add_argument(
        "--trace-ratio",
        type=_ratio,
        default=0.0,
        help="share of the requests whose traces are recorded; 0: the services decide (0)",
    )
    parser.add_argument("--replay", action="store_true", help="replay the trace until a controller takes over")
    parser.add_argument(
        "--pace", type=_number, default=8.0, help="with --replay: times faster than real, 0: as fast as possible (8)"
    )
    parser.add_argument("--delay", type=_number, default=0.0, help="with --replay: begin so many seconds later (0)")
    return parser.parse_args()


def _address(text: str) -> ListenAddress:
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return ListenAddress(host.removeprefix("[").removesuffix("]"), int(port))


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else 0


def _blocks(text: str) -> int:
    value, least = _whole(text), max(len(request.blocks) for request in load_trace())
    if value < least:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of at least {least}, the longest request of the trace"
        )
    return value


def _block_bytes(text: str) -> int:
    value = _whole(text)
    if not value or value % mmap.PAGESIZE:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes in whole pages of {mmap.PAGESIZE}")
    return value


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _number(text: str) -> float:
    value = _float(text)
    if not 0.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def _ratio(text: str) -> float:
    value = _float(text)
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def _identity(options: argparse.Namespace) -> ModelIdentity:
    return ModelIdentity(
        model=options.model,
        layout_fingerprint="demo",
        engine_block_tokens=TRACE_BLOCK_TOKENS,
        block_tokens=TRACE_BLOCK_TOKENS,
        block_bytes=options.block_bytes,
    )


async def _obey(options: argparse.Namespace, commands: BinaryIO, events: BinaryIO) -> None:
    """Serve the process at the other end of stdin and stdout."""
    identity = _identity(options)
    with EngineMemory(options.blocks, options.block_bytes) as memory:
        description = memory.description(EngineId(options.name), identity)
        async with BlockyardClient(options.socket, description, memory.guards, memory=memory.rank) as client:
            await wait_for_node(client, lambda text: _say(options.name, text), _CONNECT_SECONDS)
            engine = MockEngine(client, memory, identity, traces_at_ratio(options.trace_ratio))
            await CommandLoop(engine, TraceReplay(engine), events.write).run(lines_of(commands))


async def _serve(options: argparse.Namespace) -> None:
    """Run as a service until a signal asks for the end."""
    work = asyncio.ensure_future(_run_service(options))
    for number in _STOPPING:
        # Also needed where the signal would end other processes by itself: the first process of a container is immune.
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        _say(options.name, "stopped")


async def _run_service(options: argparse.Namespace) -> None:
    identity = _identity(options)
    own_replay = OwnReplay(options.pace, options.delay) if options.replay else None

    def say(text: str) -> None:
        _say(options.name, text)

    with EngineMemory(options.blocks, options.block_bytes) as memory:
        description = memory.description(EngineId(options.name), identity)
        async with BlockyardClient(options.socket, description, memory.guards, memory=memory.rank) as client:
            await wait_for_node(client, say)
            say("connected to its node")
            engine = MockEngine(client, memory, identity, traces_at_ratio(options.trace_ratio))
            service = EngineService(engine, own_replay, say)
            await service.run(options.listen, lambda port: say(f"takes commands at port {port}"))


def _say(name: str, text: str) -> None:
    sys.stderr.write(f"{name}: {text}\n")
    sys.stderr.flush()
