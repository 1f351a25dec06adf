"""Ports are free, different, and outside the range of outgoing connections."""

import socket

import pytest

from blockyard.cli.embedded import ports
from blockyard.core.errors import ServerStartError


def test_ports_differ_and_can_be_bound() -> None:
    chosen = ports.free_ports(10)
    assert len(set(chosen)) == 10
    for port in chosen:
        with socket.socket() as server:
            server.bind((ports.LOOPBACK, port))


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    with socket.socket() as outgoing:
        outgoing.bind((ports.LOOPBACK, 0))
        assert max(ports.free_ports(10)) < outgoing.getsockname()[1]


def test_a_range_without_free_ports_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_try_port", lambda port: None)
    with pytest.raises(ServerStartError, match="no free loopback ports"):
        ports.free_ports(1)
