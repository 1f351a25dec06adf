"""One NIXL agent with its UCX backend that copies between memories of this very process: its peer is itself.

    register(arena), register(engine memory) -> post(READ: engine to arena, WRITE: arena to engine) -> poll -> finish

The agent has no cancel and corrupts memory if a request is released before it ended, so a ``UcxTransfer`` is released
by ``finish`` alone, after ``poll`` said that it ended. A request is handed over as three columns of numbers, which
costs a tenth of a microsecond per page.
Invariants: nothing outside of registered memory is read or written, the SDK refuses it; registered memory stays
mapped until ``deregister``, because the agent keeps it; UCX opens sockets on the loopback interface only.
Threading: calls never overlap; which thread makes them does not matter.
"""

import logging
import os
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt
from nixl_cu12 import nixl_agent, nixl_agent_config

from blockyard.core.errors import TransferError
from blockyard.tiers.block_moves import Direction
from blockyard.tiers.checksum import ByteArray
from blockyard.tiers.nixl.sdk_errors import NIXL_ERRORS, reason
from blockyard.tiers.nixl.transfer_state import TransferState, poll_request

AddressArray = npt.NDArray[np.uint64]
_AGENT: Final = "blockyard-engines"
_BACKEND: Final = "UCX"
_ENVIRONMENT: Final = {
    # UCX listens on every interface otherwise, and nobody but this process has to reach it.
    "UCX_NET_DEVICES": "lo",
    # Its InfiniBand module is of no use on loopback, and where libnl is installed it ends the process by a signal.
    "UCX_MODULES": "^ib",
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class UcxMemory:
    """Registered memory; holds the bytes mapped until it is deregistered."""

    memory: ByteArray
    registration: Any

    @property
    def address(self) -> int:
        """Address of the first byte in this process."""
        return int(self.memory.ctypes.data)


@final
@dataclass(slots=True, eq=False)
class UcxTransfer:
    """A posted request; keeps the SDK's handle alive until it ended."""

    handle: Any
    running: bool
    """Posting it did not end it: only polls tell how it ends."""
    refused: bool
    """Posting it failed: whatever the polls say, its pages did not all move."""


@final
class UcxAgent:
    """Posts and polls copies between registered memories of this process."""

    def __init__(self) -> None:
        """Make the agent; takes half a second the first time in a process.

        Raises:
            TransferError: the backend cannot be made here.
        """
        # The SDK installs a handler that prints every start to standard output.
        logging.getLogger("nixl").setLevel(logging.WARNING)
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            # Polling moves both sides of a request, since they are one; a thread of the SDK's own would only compete.
            config = nixl_agent_config(enable_prog_thread=False, enable_listen_thread=False, backends=[])
            self._agent: Any = nixl_agent(_AGENT, config)
            self._agent.create_backend(_BACKEND, {})
        except NIXL_ERRORS as error:
            raise TransferError("NIXL cannot be used here", backend=_BACKEND, reason=reason(error)) from error

    def register(self, memory: ByteArray) -> UcxMemory:
        """Make contiguous bytes reachable for requests.

        Raises:
            TransferError: NIXL refused the memory.
        """
        try:
            registration = self._agent.register_memory([(int(memory.ctypes.data), memory.nbytes, 0, "")], "DRAM")
        except NIXL_ERRORS as error:
            raise TransferError("NIXL refused the memory", bytes=memory.nbytes, reason=reason(error)) from error
        if registration is None:
            raise TransferError("NIXL refused the memory", bytes=memory.nbytes, reason="it returned no registration")
        return UcxMemory(memory, registration)

    def deregister(self, memory: UcxMemory) -> None:
        """Forget memory that no request uses.

        Raises:
            TransferError: NIXL does not know it.
        """
        try:
            self._agent.deregister_memory(memory.registration)
        except NIXL_ERRORS as error:
            raise TransferError("NIXL cannot forget the memory", reason=reason(error)) from error

    def post(self, direction: Direction, arena: AddressArray, engine: AddressArray, sizes: AddressArray) -> UcxTransfer:
        """Start one request: part i of ``sizes[i]`` bytes goes from one address to the other.

        Args:
            direction: READ copies from the engine to the arena, WRITE the other way.
            arena: addresses on the arena's side.
            engine: addresses on the engine's side.
            sizes: bytes of each part.

        Raises:
            TransferError: the request could not be made, e.g. because a part lies outside; no byte moves.
        """
        try:
            handle = self._agent.initialize_xfer(
                direction.value, self._parts(arena, sizes), self._parts(engine, sizes), _AGENT
            )
        except NIXL_ERRORS as error:
            raise TransferError("NIXL refused the request", reason=reason(error)) from error
        if handle is None:
            raise TransferError("NIXL refused the request", reason="it returned no handle")
        try:
            state = self._agent.transfer(handle)
        except NIXL_ERRORS:
            # Part of it may be on its way: it must be polled like any other before its end is known.
            return UcxTransfer(handle, running=True, refused=True)
        return UcxTransfer(handle, running=state != "DONE", refused=state == "ERR")

    def poll(self, transfer: UcxTransfer) -> TransferState:
        """Make progress and look at one request."""
        if not transfer.running:
            return TransferState.DONE
        return poll_request(self._agent, transfer.handle, refused=transfer.refused)

    def finish(self, transfer: UcxTransfer) -> None:
        """Release a request that ended."""
        transfer.handle.release()

    def close(self) -> None:
        """Release the agent; everything was deregistered before."""
        self._agent = None

    def _parts(self, addresses: AddressArray, sizes: AddressArray) -> Any:
        columns = np.zeros((len(addresses), 3), np.uint64)
        columns[:, 0] = addresses
        columns[:, 1] = sizes
        parts = self._agent.get_xfer_descs(columns, "DRAM")
        if parts is None:
            raise TransferError("NIXL refused the description of a request", parts=len(addresses))
        return parts
