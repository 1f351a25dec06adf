"""A node that is only looked at, as a base for nodes of a venue that tests make up."""

from collections.abc import Callable

import httpx

from blockyard.cli.slab_damage import SlabBlock


class IdleNode:
    """It refuses to be killed, started or damaged."""

    running = True

    def __init__(self, name: str) -> None:
        self.name = name

    async def kill(self) -> None:
        raise NotImplementedError

    async def kill_services(self) -> None:
        raise NotImplementedError

    async def start_services(self) -> None:
        raise NotImplementedError

    async def wait_ready(self, http: httpx.AsyncClient, say: Callable[[str], None]) -> None:
        raise NotImplementedError

    async def slab_blocks(self) -> list[SlabBlock]:
        raise NotImplementedError

    async def flip_slab_byte(self, block: SlabBlock) -> None:
        raise NotImplementedError
