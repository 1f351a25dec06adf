"""One NIXL agent with its POSIX backend: the calls we make, in our words and with our errors.

The agent makes progress only while it is polled, has no cancel, and corrupts memory if a request is released before it
ended or if two threads use it. So a ``PosixTransfer`` is released by ``finish`` alone, after ``poll`` said it ended.
Invariants: the arena is registered once, each region once, at its first use; index arrays name blocks from then on.
Threading: made, used and closed in one thread, the owner's.
"""

import logging
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Any, Final, final

import numpy as np
from nixl_cu12 import nixl_agent, nixl_agent_config

from blockyard.core.errors import TransferError
from blockyard.tiers.arena import Arena
from blockyard.tiers.base import SlabRegion, SlotArray
from blockyard.tiers.block_moves import Direction
from blockyard.tiers.nixl.sdk_errors import NIXL_ERRORS, reason
from blockyard.tiers.nixl.transfer_state import TransferState, poll_request

_AGENT: Final = "blockyard"
_BACKEND: Final = "POSIX"
_LOCAL: Final = "NIXL_INIT_AGENT"
"""Owner name that NIXL gives to the initiator's side of a prepared list."""


@unique
class PosixQueue(StrEnum):
    """Kernel interface under the backend. A third one exists; after an error it keeps writing into its buffers."""

    URING = "uring"
    AIO = "aio"


@dataclass(slots=True, eq=False)
class PosixTransfer:
    """A posted request; keeps the SDK's handle alive until it ended."""

    handle: Any
    refused: bool
    """Posting it failed: whatever the polls say, its blocks did not all move."""


@final
class PosixAgent:
    """Posts and polls block transfers between one arena and slab files."""

    def __init__(self, queue: PosixQueue, arena: Arena) -> None:
        """Make the agent and register the arena.

        Raises:
            TransferError: the backend cannot be made here.
        """
        # The SDK installs a handler that prints every start to standard output.
        logging.getLogger("nixl").setLevel(logging.WARNING)
        self._regions: dict[SlabRegion, tuple[Any, Any]] = {}
        address, stride, slots = arena.payload_address, arena.stride_bytes, arena.slots
        try:
            config = nixl_agent_config(enable_prog_thread=False, enable_listen_thread=False, backends=[])
            self._agent: Any = nixl_agent(_AGENT, config)
            self._agent.create_backend(_BACKEND, {f"use_{queue.value}": "true"})
            self._arena_memory = self._agent.register_memory([(address, slots * stride, 0, "")], "DRAM")
            self._arena_list = self._prepared(_LOCAL, (address, stride, 0, stride, slots), "DRAM")
        except NIXL_ERRORS as error:
            raise TransferError("NIXL cannot be used here", queue=queue.value, reason=reason(error)) from error

    def post(
        self, direction: Direction, region: SlabRegion, arena_slots: SlotArray, file_slots: SlotArray
    ) -> PosixTransfer:
        """Start one request for these blocks.

        Raises:
            TransferError: the request could not be made; no byte moves.
        """
        try:
            _, file_list = self._registered(region)
            handle = self._agent.make_prepped_xfer(
                direction.value, self._arena_list, arena_slots, file_list, file_slots
            )
        except NIXL_ERRORS as error:
            raise TransferError("NIXL refused the request", reason=reason(error)) from error
        if handle is None:
            raise TransferError("NIXL refused the request", reason="it returned no handle")
        try:
            state = self._agent.transfer(handle)
        except NIXL_ERRORS:
            # Part of it may have been handed to the kernel: it must be polled like any other before its end is known.
            return PosixTransfer(handle, refused=True)
        return PosixTransfer(handle, refused=state == "ERR")

    def poll(self, transfer: PosixTransfer) -> TransferState:
        """Make progress and look at one request."""
        return poll_request(self._agent, transfer.handle, refused=transfer.refused)

    def finish(self, transfer: PosixTransfer) -> None:
        """Release a request that ended."""
        transfer.handle.release()

    def close(self) -> None:
        """Release everything; no request may be running."""
        for memory, file_list in self._regions.values():
            file_list.release()
            self._agent.deregister_memory(memory)
        self._regions.clear()
        self._arena_list.release()
        self._agent.deregister_memory(self._arena_memory)
        self._agent = None

    def _registered(self, region: SlabRegion) -> tuple[Any, Any]:
        if region not in self._regions:
            fd, stride = region.file.fileno(), region.stride_bytes
            memory = self._agent.register_memory([(region.payload_offset, region.slots * stride, fd, "")], "FILE")
            blocks = self._prepared(_AGENT, (region.payload_offset, stride, fd, stride, region.slots), "FILE")
            self._regions[region] = (memory, blocks)
        return self._regions[region]

    def _prepared(self, owner: str, strided: tuple[int, int, int, int, int], kind: str) -> Any:
        """Describe a whole pool of blocks by one row: address, length, device, stride, count."""
        blocks = self._agent.prep_xfer_dlist(owner, np.array([strided], np.uint64), kind)
        if blocks is None:
            raise TransferError("NIXL refused the description of a memory", kind=kind)
        return blocks
