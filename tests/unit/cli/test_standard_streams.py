"""A caller that closed the standard streams gets no data into its files, and no traceback."""

import subprocess
import sys

import pytest

PROGRAM = (
    "import os, sys\n"
    "from blockyard.cli.standard_streams import require_standard_streams\n"
    "require_standard_streams()\n"
    "sys.stdout.write('out')\n"
    "sys.stderr.write('err')\n"
    "assert sys.stdin is not None\n"
    "raise SystemExit(0 if os.open(os.devnull, os.O_RDONLY) > 2 else 1)\n"
)


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-", ""])
def test_closed_streams_are_replaced(closed: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("" if "1>&-" in closed else "out")
    assert done.stderr == ("" if "2>&-" in closed else "err")
