"""The command line of the service."""

import sys

import pytest

from blockyard_remote_tier.program import run


@pytest.mark.parametrize(
    ("variable", "value", "key"),
    [
        ("BLOCKYARD_REDIS__URL", "http://127.0.0.1:6379", "redis.url"),
        ("BLOCKYARD_REDIS__URL", "redis://host:99999/0", "redis.url"),
        ("BLOCKYARD_REDIS__URL", "redis://host/0?decode_responses=true", "redis.url"),
        ("BLOCKYARD_REDIS__URL", "redis://host/0?unheard_of=1", "redis.url"),
        ("BLOCKYARD_REDIS__URL", "redis://host/0?protocol=9", "redis.url"),
        ("BLOCKYARD_REDIS__URL", "redis://host/0?encoding=nope", "redis.url"),
        ("BLOCKYARD_REDIS__URL", "redis://host/0?retry=1", "redis.url"),
        ("BLOCKYARD_REDIS__URL", "rediss://host/0?ssl_cert_reqs=foo", "redis.url"),
        ("BLOCKYARD_G4__SECRET_KEY", "x\x01y", "g4.secret_key"),
        ("BLOCKYARD_G4__ACCESS_KEY", "a\nb", "g4.access_key"),
        ("BLOCKYARD_G4__REGION", "x\r\ny", "g4.region"),
        ("BLOCKYARD_G4__ENDPOINT_URL", "s3://host", "g4.endpoint_url"),
    ],
)
def test_a_wrong_address_of_a_server_is_found_without_a_start(
    variable: str, value: str, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["blockyard-remote-tier", "--check-config"])
    monkeypatch.setenv("AWS_PROFILE", "of somebody else")
    assert run() == 0
    monkeypatch.setenv(variable, value)
    assert run() == 2
    assert f"key={key}" in capsys.readouterr().err
