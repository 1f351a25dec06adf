"""The command line of the service."""

import sys

import pytest

from blockyard_block_manager.program import run


@pytest.mark.parametrize("url", ["nats:4222", "http://127.0.0.1:4222", "nats://", "nats://host:99999"])
def test_a_wrong_address_of_nats_is_found_without_a_start(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["blockyard-block-manager", "--check-config"])
    assert run() == 0
    monkeypatch.setenv("BLOCKYARD_NATS__URL", url)
    assert run() == 2
    assert "key=nats.url" in capsys.readouterr().err


def check(monkeypatch: pytest.MonkeyPatch, **settings: str) -> int:
    monkeypatch.setattr(sys, "argv", ["blockyard-block-manager", "--check-config"])
    for key, value in settings.items():
        monkeypatch.setenv(f"BLOCKYARD_{key.upper()}", value)
    return run()


def test_a_g2_in_which_no_object_comes_together_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"node__block_bytes": "64KiB", "g4__target_bytes": "1MiB"}
    assert check(monkeypatch, **small, g2__capacity="512KiB") == 0
    assert check(monkeypatch, **small, g2__capacity="511KiB") == 2
    said = capsys.readouterr().err
    assert "G2 holds 7 blocks, and an object of G4 is made of 8" in said
    assert "raise this to 512KiB" in said
    assert "key=g2.capacity" in said
    assert check(monkeypatch, **small, g2__capacity="511KiB", g4__enabled="false") == 0
