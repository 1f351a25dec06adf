"""Behaviours that users of NVIDIA Dynamo KVBM rely on are tests, and each has its number in a name."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
FOLDERS = ("unit/core", "unit/block_manager", "unit/connectors")
"""Numbers elsewhere are of other lists."""
ELSEWHERE = {49, 50, 59, 60}
"""Of what consumers make of several publishers, and of whole engines: not of these folders."""


def test_every_behaviour_has_a_test_that_names_its_number() -> None:
    text = "\n".join(path.read_text() for folder in FOLDERS for path in (TESTS / folder).rglob("test_*.py"))
    numbers = set(map(int, re.findall(r"^(?:async )?def test_(?:kvbm_)?(\d+)_", text, re.M)))
    assert numbers | ELSEWHERE == set(range(1, 61))
