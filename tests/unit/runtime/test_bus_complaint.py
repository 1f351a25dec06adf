"""What people are told where NATS cannot be used."""

import errno
import os

import nats.errors
import pytest

from blockyard.runtime.bus_complaint import bus_complaint

REFUSED = OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


@pytest.mark.parametrize(
    ("url", "error", "reason"),
    [
        ("nats://u:hush@host:4222", REFUSED, "cannot connect to host:4222: Connection refused"),
        ("nats://u:hush@host:4222", OSError("Multiple exceptions"), "cannot connect to host:4222: Multiple exceptions"),
        ("nats://u:hush@host:4222", TimeoutError(), "does not answer in time"),
        ("nats://u:hush@host:4222", nats.errors.TimeoutError(), "does not answer in time"),
        ("nats://host:4222", nats.errors.Error("nats: 'Authorization Violation'"), "wants an account"),
        ("nats://hush@host:4222", nats.errors.Error("nats: 'Authorization Violation'"), "refuses this user"),
        ("nats://u:hush@host:4222", nats.errors.AuthorizationError(), "refuses this user"),
        ("nats://u:hush@host:4222", nats.errors.Error("nats: info message, json parse error"), "json parse error"),
        ("nats://u:hush@host:4222", LookupError(), "cannot be used as NATS: LookupError"),
    ],
)
def test_a_failed_connection_names_the_setting_and_no_secret(url: str, error: Exception, reason: str) -> None:
    complaint = bus_complaint(error, url)
    assert complaint.startswith("nats.url: ")
    assert reason in complaint
    assert "hush" not in complaint
