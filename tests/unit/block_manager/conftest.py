"""Worlds for tests: made by ``make_world``, their handles given back at the end."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.block_manager.world import World


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    """Maker of worlds with the parameters of ``World``."""
    made: list[World] = []

    def make(**parameters: Any) -> World:
        made.append(World(**parameters))
        return made[-1]

    yield make
    for world in made:
        world.close()
