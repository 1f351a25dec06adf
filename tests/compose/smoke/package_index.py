"""What a build needs to know about the package index of this machine: pip's settings, and the folders they name.

Nothing of it gets into an image: the settings are a secret of the build, the folders are mounted while it runs.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from tests.compose.smoke.shell import Shell

_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_KEPT: Final = ("index-url", "extra-index-url", "find-links", "trusted-host", "proxy", "default-timeout", "timeout")
_SETTING: Final = re.compile(r"^(?:global|install|:env:)\.([a-z-]+)=(.*)$")


@final
@dataclass(frozen=True, slots=True)
class PackageIndex:
    """How a build reaches the packages."""

    settings: Path
    folders: tuple[Path, ...]

    def build_options(self) -> list[str]:
        """Options of ``podman build``."""
        options = [f"--secret=id=pip_conf,src={self.settings}"]
        if _CERTIFICATES.exists():
            options.append(f"--secret=id=ca_certificates,src={_CERTIFICATES}")
        return options + [f"--volume={folder}:{folder}:ro" for folder in self.folders]


def package_index(shell: Shell, folder: Path) -> PackageIndex:
    """Look up how pip is set up here, and write that into ``folder`` for builds."""
    kept = settings(shell.run(sys.executable, "-m", "pip", "config", "list"))
    path = folder / "pip.conf"
    path.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in kept.items()))
    return PackageIndex(path, tuple(sorted(set(local_folders(kept.values())))))


def settings(listed: str) -> dict[str, str]:
    """The settings that matter, from what ``pip config list`` prints; variables come after files and win."""
    found: dict[str, str] = {}
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):
        if (match := _SETTING.match(line)) and match[1] in _KEPT:
            found[match[1]] = str(ast.literal_eval(match[2]))
    return found


def local_folders(values: Iterable[str]) -> Iterator[Path]:
    """Folders of this machine among the places that settings name."""
    for value in values:
        for word in value.split():
            path = Path(word.removeprefix("file://"))
            if path.is_absolute() and path.is_dir():
                # An index lies below a folder that holds its files too.
                yield path.parent if path.name == "simple" else path
