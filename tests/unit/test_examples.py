"""The example programs say how they are called."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("program", "arguments"), [("engine.py", ()), ("events.py", ()), ("events.py", ("nats://127.0.0.1:1", "some"))]
)
def test_wrong_usage_is_answered_with_the_usage(program: str, arguments: tuple[str, ...]) -> None:
    command = (sys.executable, str(EXAMPLES / program), *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"Usage: {program} " in done.stderr
    assert "Traceback" not in done.stderr
