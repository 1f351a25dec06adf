"""An error says what failed, which, and what to do; within another one it leaves the last to that."""

import pytest

from blockyard.core.errors import BlockyardError, UnavailableError


@pytest.mark.parametrize(
    ("error", "finding"),
    [
        (UnavailableError("nobody listens", path="/s", tries=3), "nobody listens (path=/s, tries=3)"),
        (UnavailableError("nobody listens"), "nobody listens"),
        (UnavailableError(path="/s"), f"{UnavailableError.title} (path=/s)"),
    ],
)
def test_an_error_says_what_and_which_and_then_what_to_do(error: BlockyardError, finding: str) -> None:
    assert error.finding == finding
    assert str(error) == f"{finding} {error.remedy}"
