"""The command line of the service."""

import sys

import pytest

from blockyard_offload_worker.program import run


def test_help_says_what_the_service_is_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["blockyard-offload-worker", "--help"])
    with pytest.raises(SystemExit) as end:
        run()
    assert end.value.code == 0
    assert "local disk" in capsys.readouterr().out


def test_settings_can_be_checked_without_starting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["blockyard-offload-worker", "--check-config"])
    assert run() == 0
    monkeypatch.setenv("BLOCKYARD_G3__CAPACTY", "1GiB")
    assert run() == 2
    assert "BLOCKYARD_G3__CAPACITY" in capsys.readouterr().err


@pytest.mark.parametrize("tier", ["g2", "g3"])
def test_a_size_that_no_tier_can_have_is_found_without_a_start(
    tier: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["blockyard-offload-worker", "--check-config"])
    monkeypatch.setenv(f"BLOCKYARD_{tier.upper()}__CAPACITY", str(1 << 60))
    assert run() == 2
    assert f"key={tier}.capacity" in capsys.readouterr().err
