"""Runs a command in a process namespace of its own, whose first process it is, like the one of a container."""

import shutil
import subprocess

import pytest

_CHOICES = (
    ("unshare", "--pid", "--fork", "--mount-proc"),
    ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"),
)


@pytest.fixture(scope="module")
def wrapper() -> tuple[str, ...]:
    """Command that runs another one in a process namespace of its own."""
    for choice in _CHOICES:
        if shutil.which(choice[0]) and _first_in_its_namespace(choice):
            return choice
    pytest.skip("process namespaces cannot be made here (unshare)")


def _first_in_its_namespace(choice: tuple[str, ...]) -> bool:
    command = [*choice, "/bin/sh", "-c", "echo $$"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    return done.stdout.strip() == "1"
