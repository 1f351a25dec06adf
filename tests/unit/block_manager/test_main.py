"""The command line of the service."""

import sys

import pytest

from blockyard_block_manager.main import main


@pytest.mark.parametrize("url", ["nats:4222", "http://127.0.0.1:4222", "nats://", "nats://host:99999"])
def test_a_wrong_address_of_nats_is_found_without_a_start(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["blockyard-block-manager", "--check-config"])
    assert main() == 0
    monkeypatch.setenv("BLOCKYARD_NATS__URL", url)
    assert main() == 2
    assert "key=nats.url" in capsys.readouterr().err
