"""Errors of the system come out as what they mean for a run, and limits are looked at before they hurt."""

import errno
import resource

import pytest

from blockyard.cli.failures import SystemCallError, SystemLimitError
from blockyard.cli.open_files import NEEDED_OPEN_FILES, require_open_files
from blockyard.cli.system_calls import meaning_of
from blockyard.core.errors import BlockyardError, DiskFullError


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, DiskFullError, "TMPDIR"),
        (errno.EDQUOT, DiskFullError, "TMPDIR"),
        (errno.EMFILE, SystemLimitError, "ulimit -n"),
        (errno.EIO, SystemCallError, "Input/output error"),
    ],
)
def test_each_error_says_what_to_do_about_it(number: int, kind: type[BlockyardError], words: str) -> None:
    meaning = meaning_of(OSError(number, "Input/output error", "/some/file"))
    assert type(meaning) is kind
    assert words in str(meaning)
    assert "/some/file" in str(meaning)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """Limits of the process, as far as the code sees them."""
    held = {"now": (0, 0)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: held["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, value: held.update(now=value))
    return held


UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((64, 1 << 20), (4_096, 1 << 20)),
        ((64, UNLIMITED), (4_096, UNLIMITED)),
        ((1_024, 2_048), (2_048, 2_048)),
        ((8_192, 8_192), (8_192, 8_192)),
        ((UNLIMITED, UNLIMITED), (UNLIMITED, UNLIMITED)),
    ],
)
def test_limit_is_raised_as_far_as_allowed(
    limits: dict[str, tuple[int, int]], before: tuple[int, int], after: tuple[int, int]
) -> None:
    limits["now"] = before
    require_open_files()
    assert limits["now"] == after


def test_limit_that_stays_too_low_is_named_with_what_is_needed(limits: dict[str, tuple[int, int]]) -> None:
    limits["now"] = (40, 64)
    with pytest.raises(SystemLimitError, match=f"ulimit -n, allowed=64, needed={NEEDED_OPEN_FILES}"):
        require_open_files()
