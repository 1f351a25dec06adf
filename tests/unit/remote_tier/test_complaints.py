"""What people are told of servers: the setting first, a remedy, and never a secret."""

import pytest
from pydantic import SecretStr

from blockyard.core.errors import (
    AccessDeniedError,
    BlockyardError,
    ConfigurationError,
    DeadlineExceededError,
    ForeignFileError,
    ObjectNotFoundError,
    TransferError,
    UnavailableError,
)
from blockyard.runtime.settings import G4Section, RedisSection
from blockyard_remote_tier.complaints import index_complaint, settings_named, store_complaint

G4 = G4Section(access_key=SecretStr("hush-name"), secret_key=SecretStr("hush-secret"), bucket="cache")


@pytest.mark.parametrize(
    ("error", "keys", "reason"),
    [
        (AccessDeniedError(reason="InvalidAccessKeyId"), ["g4.access_key"], "does not know this account"),
        (AccessDeniedError(reason="SignatureDoesNotMatch"), ["g4.secret_key"], "does not belong to g4.access_key"),
        (AccessDeniedError(reason="AccessDenied", action="write"), ["g4.bucket", "g4.access_key"], "may not write"),
        (AccessDeniedError(), ["g4.bucket", "g4.access_key"], "is refused"),
        (UnavailableError(reason="InvalidBucketName"), ["g4.bucket"], "no bucket called cache"),
        (UnavailableError("Connection refused"), ["g4.endpoint_url"], "127.0.0.1:8333: Connection refused"),
        (DeadlineExceededError(), ["g4.endpoint_url"], "does not answer in time"),
        (ObjectNotFoundError(), ["g4.bucket", "g4.prefix"], "cache/kv has vanished"),
        (ForeignFileError("another store", found="ab"), ["g4.bucket", "g4.prefix"], "start this anew"),
        (ForeignFileError("not a marker"), ["g4.bucket", "g4.prefix"], "or remove the object cache/kv/store.json"),
        (ConfigurationError("packs of 1 bytes", key="g4.target_bytes"), ["g4.target_bytes"], "packs of 1 bytes"),
    ],
)
def test_a_failure_of_the_store_names_the_settings(error: BlockyardError, keys: list[str], reason: str) -> None:
    complaint = store_complaint(error, G4)
    assert settings_named(complaint) == frozenset(keys)
    assert reason in complaint
    assert "hush" not in complaint
    assert "folder" not in complaint


def test_a_store_that_wants_an_account_is_told_from_one_that_refuses_it() -> None:
    complaint = store_complaint(AccessDeniedError(reason="AccessDenied", action="read"), G4Section())
    assert settings_named(complaint) == frozenset({"g4.access_key", "g4.secret_key"})
    assert "none is given" in complaint


def test_another_failure_is_told_as_it_is() -> None:
    error = TransferError("odd")
    assert store_complaint(error, G4) == str(error)
    assert settings_named(store_complaint(error, G4)) == frozenset()


@pytest.mark.parametrize(
    ("url", "error", "reason"),
    [
        ("redis://host:6379/0", AccessDeniedError("HELLO must be called"), "wants a password, and none is given"),
        ("redis://:hush@host:6379/0", AccessDeniedError("invalid pair"), "refuses this user or password"),
        ("redis://u:hush@host:6379/0", AccessDeniedError("no permissions to run 'get'"), "no permissions to run 'get'"),
        ("redis://u:hush@host:6379/0", DeadlineExceededError(), "does not answer in time"),
        (
            "redis://u:hush@host:6379/0",
            UnavailableError("refused"),
            "no index at host:6379: refused; check host and port",
        ),
        ("redis://u:hush@host/0", UnavailableError("refused"), "no index at host: refused; check host and port"),
        (
            "unix:///run/redis.sock?password=hush",
            UnavailableError("refused"),
            "no index at /run/redis.sock: refused; check the path",
        ),
    ],
)
def test_a_failure_of_the_index_names_its_setting(url: str, error: UnavailableError, reason: str) -> None:
    complaint = index_complaint(error, RedisSection(url=SecretStr(url)))
    assert settings_named(complaint) == frozenset({"redis.url"})
    assert reason in complaint
    assert "hush" not in complaint
