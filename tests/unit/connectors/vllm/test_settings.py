"""Odd settings of the connector are refused by name, with what is odd about them."""

from pathlib import Path

import pytest

from blockyard.connectors.vllm.settings import connector_settings
from blockyard.core.errors import ConfigurationError

SOCKET = {"blockyard.socket": "/run/node/engines.sock"}


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("Blockyard.socket", "blockyard.socket"),
        ("BLOCKYARD.SOCKET", "blockyard.socket"),
        ("blockyard_socket", "blockyard.socket"),
        ("blockyard-hold_ms", "blockyard.hold_ms"),
        ("blockyard.Hold_MS", "blockyard.hold_ms"),
        ("blockyard.load_timeout", "blockyard.load_timeout_ms"),
        ("blockyard", "blockyard."),
    ],
)
def test_a_key_that_is_written_otherwise_is_refused_with_the_nearest(key: str, nearest: str) -> None:
    with pytest.raises(ConfigurationError, match="no such setting") as refusal:
        connector_settings({**SOCKET, key: "/run/other.sock"})
    assert nearest in str(refusal.value)
    assert refusal.value.fields["setting"] == key


@pytest.mark.parametrize("key", ["socket", "other.blockyard", "spec_name"])
def test_keys_of_others_are_theirs(key: str) -> None:
    assert connector_settings({**SOCKET, key: 1}).socket == Path(SOCKET["blockyard.socket"])


@pytest.mark.parametrize("name", ["lookup_wait_ms", "load_timeout_ms", "hold_ms", "block_tokens"])
@pytest.mark.parametrize("value", [-1, 1.5, "100", None, True, 10**9])
def test_numbers_that_cannot_be_are_refused_with_their_limits(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=rf"setting=blockyard\.{name}.*given=.*lowest=.*highest="):
        connector_settings({**SOCKET, f"blockyard.{name}": value})


@pytest.mark.parametrize("name", ["lookup_wait_ms", "load_timeout_ms", "block_tokens"])
def test_no_time_at_all_is_refused_where_nothing_could_happen_in_it(name: str) -> None:
    with pytest.raises(ConfigurationError, match="lowest=1"):
        connector_settings({**SOCKET, f"blockyard.{name}": 0})
    assert connector_settings({**SOCKET, "blockyard.hold_ms": 0}).hold_ms == 0


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("engines.sock", "absolute"),
        ("./run/engines.sock", "absolute"),
        ("~/engines.sock", "absolute"),
        ("", "printable"),
        ("/run/\0.sock", "printable"),
        (17, "printable"),
        ("/" + "x" * 108, "folder with a shorter one.*bytes=109, limit=100"),
        ("/" + "ü" * 54, "bytes=109"),
    ],
)
def test_a_socket_that_cannot_be_is_refused(path: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{message}|setting=blockyard\.socket.*{message}"):
        connector_settings({"blockyard.socket": path})


@pytest.mark.parametrize(
    ("name", "longest"), [("name", 128), ("model", 1_024), ("weights_version", 1_024)], ids=lambda value: str(value)
)
def test_names_are_printable_and_not_too_long(name: str, longest: int) -> None:
    key = f"blockyard.{name}"
    assert getattr(connector_settings({**SOCKET, key: "x" * longest}), name) == "x" * longest
    with pytest.raises(ConfigurationError, match=rf"shorter.*setting={key}.*limit={longest}"):
        connector_settings({**SOCKET, key: "x" * (longest + 1)})
    for odd in ("", "  ", "two\nlines", 3, None):
        with pytest.raises(ConfigurationError, match="printable"):
            connector_settings({**SOCKET, key: odd})
