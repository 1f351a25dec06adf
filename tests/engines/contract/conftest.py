"""Engines for the contract tests: made anew for each, closed at its end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.contract.engine_parts import Engine, model_folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def make_engine(model: Path) -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def make(**options: Any) -> Engine:
        made.append(Engine(model, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def engine(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine()
