"""What docker compose says about a project: its resolved configuration, its containers, its published ports.

Threading: one event loop.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final
from urllib.parse import urlsplit

import msgspec

from blockyard.cli.compose.command import ComposeCommand
from blockyard.cli.failures import ComposeError
from blockyard.core.errors import ConfigurationError
from blockyard.runtime.settings import NodeSettings
from blockyard.runtime.settings_source import load_settings

_RUNNING: Final = "running"
_ENDS_BEFORE: Final = "service_completed_successfully"
_LOG_LINES: Final = "15"
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Where a port that is published on all addresses is reached from here."""


class _Dependency(msgspec.Struct, frozen=True):
    condition: str = ""
    required: bool = True

    @property
    def has_to_run(self) -> bool:
        return self.required and self.condition != _ENDS_BEFORE


class _Service(msgspec.Struct, frozen=True):
    environment: dict[str, str | None] = {}
    depends_on: dict[str, _Dependency] = {}


class _Configuration(msgspec.Struct, frozen=True):
    name: str
    services: dict[str, _Service]


class _Container(msgspec.Struct, frozen=True, rename="pascal"):
    service: str
    state: str
    exit_code: int = 0


@final
@dataclass(frozen=True, slots=True)
class ServiceState:
    """State of the container of one service."""

    running: bool
    text: str
    """As people read it."""


@final
class ComposeProject:
    """One project."""

    def __init__(self, command: ComposeCommand, configuration: _Configuration) -> None:
        """Use :meth:`read`."""
        self.command = command
        self._configuration = configuration

    @classmethod
    async def read(cls, command: ComposeCommand) -> "ComposeProject":
        """The project that the command is about.

        Raises:
            ComposeError: its files cannot be resolved.
        """
        text = await command.run("config", "--format", "json")
        try:
            configuration = msgspec.json.decode(text, type=_Configuration)
        except msgspec.MsgspecError as error:
            raise ComposeError(f"{command.line('config')} wrote no configuration: {error}.") from None
        return cls(command, configuration)

    @property
    def name(self) -> str:
        """Its name."""
        return self._configuration.name

    def require(self, *services: str) -> None:
        """See that there are these services.

        Raises:
            ConfigurationError: some are missing.
        """
        if missing := [service for service in services if service not in self._configuration.services]:
            raise ConfigurationError("the compose files lack services", key="--compose", missing=", ".join(missing))

    def with_dependencies(self, services: Iterable[str]) -> set[str]:
        """These services and all that have to run for them."""
        found: set[str] = set()
        open_ends = list(services)
        while open_ends:
            service = open_ends.pop()
            if service not in found:
                found.add(service)
                depends_on = self._configuration.services[service].depends_on
                open_ends += [name for name, how in depends_on.items() if how.has_to_run]
        return found

    def settings(self, service: str) -> NodeSettings:
        """Settings that a service of Blockyard gets from the compose files; what its image sets is not among them."""
        environment = self._configuration.services[service].environment
        return load_settings({name: value for name, value in environment.items() if value is not None})

    async def states(self) -> dict[str, ServiceState]:
        """Services that have a container; where one has several, one that runs counts."""
        text = (await self.command.run("ps", "--all", "--format", "json")).strip()
        try:
            if text.startswith("["):
                containers = msgspec.json.decode(text, type=list[_Container])
            else:
                containers = msgspec.json.Decoder(_Container).decode_lines(text)  # as of release 2.21
        except msgspec.MsgspecError as error:
            raise ComposeError(f"{self.command.line('ps')} wrote no list of containers: {error}.") from None
        # What was run once beside a service, with compose run, has its name.
        containers.sort(key=lambda container: container.state == _RUNNING)
        return {container.service: _state_of(container) for container in containers}

    async def place(self, service: str, port: int) -> str:
        """Host and port under which a port of a service is reached from here.

        Raises:
            ConfigurationError: the port is not published.
        """
        try:
            published = (await self.command.run("port", service, str(port))).strip()
        except ComposeError as error:
            raise ConfigurationError(
                f"a port is not published: {error.detail}", key=f"{service}: ports", port=port
            ) from None
        host, _, number = published.rpartition(":")
        if not number.isdecimal() or number == "0":
            raise ConfigurationError("a port is not published", key=f"{service}: ports", port=port)
        host = host.removeprefix("[").removesuffix("]")
        host = _EVERYWHERE.get(host, host)
        return f"[{host}]:{number}" if ":" in host else f"{host}:{number}"

    async def reachable(self, url: str) -> str:
        """An address that containers use, as it is used from here; one outside the project stays as it is.

        Raises:
            ConfigurationError: the port is not published.
        """
        address = urlsplit(url)
        if address.hostname not in self._configuration.services:
            return url
        port = address.port or (443 if address.scheme == "https" else 80)
        return f"{address.scheme}://{await self.place(address.hostname, port)}"

    async def log_tail(self, service: str) -> str:
        """End of a service's log, for messages; empty where it cannot be had."""
        with contextlib.suppress(ComposeError):
            return await self.command.run("logs", "--no-color", "--no-log-prefix", "--tail", _LOG_LINES, service)
        return ""


def _state_of(container: _Container) -> ServiceState:
    running = container.state == _RUNNING
    return ServiceState(running, container.state if running else f"{container.state} with {container.exit_code}")
