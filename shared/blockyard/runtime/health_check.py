"""``blockyard-health``: whether a service of this node is healthy, for container health checks and Kubernetes probes.

::

    blockyard-health ready|live|started --service block-manager
    0 healthy   1 not: one line names the checks that fail   2 wrong command line or settings

Asks the HTTP side of the service, whose address lies in the state folder. It runs every few seconds beside the service,
so an answer costs as little as can be: of the settings only the state folder is read, in the order of
``settings_source``. The whole tree is read only where no service answers, to tell wrong settings from a service that
does not run.
Invariants: never writes; ends within about the timeout. Threading: none; blocking calls with a timeout.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum, unique
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from blockyard.core.errors import ConfigurationError, ForeignFileError, UnavailableError
from blockyard.runtime.node_folder import DEFAULT_FOLDER, NodeFolder, ServiceFolder, ServiceName
from blockyard.runtime.setting_variables import ENV_CONFIG, own_variables

EXIT_HEALTHY: Final = 0
EXIT_UNHEALTHY: Final = 1
EXIT_CANNOT_ASK: Final = 2
_ENV_FOLDER: Final = "BLOCKYARD_NODE__FOLDER"
_MAX_ANSWER_BYTES: Final = 64 << 10
_LONGEST_TIMEOUT_SECONDS: Final = 60.0


@unique
class Question(StrEnum):
    """What can be asked."""

    READY = "ready"
    """Does it serve, with everything that it needs?"""
    LIVE = "live"
    """Does its event loop turn?"""
    STARTED = "started"
    """Has it done the work of its start?"""

    @property
    def path(self) -> str:
        """Page that answers it."""
        return {Question.READY: "/readyz", Question.LIVE: "/livez", Question.STARTED: "/startupz"}[self]


def main(argv: Sequence[str] | None = None) -> int:
    """Ask once; returns the exit code."""
    options = _parse(argv)
    service, question = ServiceName(options.service), Question(options.question)
    try:
        folder = NodeFolder(state_folder(os.environ)).service(service)
        complaint = ask(folder, question, options.timeout)
    except UnavailableError as error:
        complaint = error.detail
        if wrong := _wrong_settings():
            sys.stderr.write(f"blockyard-health: {wrong}\n")
            return EXIT_CANNOT_ASK
    except ConfigurationError as error:
        sys.stderr.write(f"blockyard-health: {error}\n")
        return EXIT_CANNOT_ASK
    # Container health checks keep what was written; which stream makes no difference to them.
    sys.stdout.write(f"{service}: {complaint or question}\n")
    return EXIT_UNHEALTHY if complaint else EXIT_HEALTHY


def state_folder(env: Mapping[str, str]) -> Path:
    """State folder of the node: environment over settings file over default, like every other setting.

    Raises:
        ConfigurationError: the settings file cannot be read.
    """
    variables = own_variables(env)
    _, text = variables.get(_ENV_FOLDER, ("", None))
    _, file = variables.get(ENV_CONFIG, ("", ""))
    if text is None and file:
        # Here, because the parser of YAML takes longer to load than everything else.
        from blockyard.runtime.settings_file import read_file

        text = read_file(file).get("node", {}).get("folder")
    return DEFAULT_FOLDER if text is None else Path(text).absolute()


def ask(folder: ServiceFolder, question: Question, timeout_seconds: float) -> str:
    """What the service says is wrong with it, in one line; empty where it is healthy.

    Raises:
        UnavailableError: no service answers; ``detail`` says the whole.
    """
    try:
        url = folder.read_http()
    except ForeignFileError as error:
        raise UnavailableError(f"not running: {folder.http} holds no address") from error
    except OSError as error:
        raise UnavailableError(f"not to be asked: {folder.http}: {error.strerror or error}") from error
    if url is None:
        raise UnavailableError(f"not running: there is no {folder.http}")
    status, body = _get(url, question.path, timeout_seconds)
    return "" if status == 200 else _complaint(question, status, body)


def _get(url: str, path: str, timeout_seconds: float) -> tuple[int, bytes]:
    address = urlsplit(url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=timeout_seconds)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(_MAX_ANSWER_BYTES)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UnavailableError(f"no answer from {url}{path}: {reason}") from error
    finally:
        connection.close()


def _complaint(question: Question, status: int, body: bytes) -> str:
    try:
        page = json.loads(body)
        failing = [f"{check['name']} ({check['detail']})" for check in page.get("checks", ()) if not check["ok"]]
        started = page.get("started", True)
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"not {question}: answered {status}"
    return f"not {question}: " + "; ".join(failing or ["has not started" if not started else f"answered {status}"])


def _wrong_settings() -> ConfigurationError | None:
    """What keeps a service with the settings of this process from starting, if they do."""
    from blockyard.runtime.settings_source import load_settings

    try:
        load_settings()
    except ConfigurationError as error:
        return error
    return None


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="blockyard-health",
        description="Say whether a service of this node is healthy. Exit codes: 0 it is, 1 it is not, 2 wrong use.",
        epilog="The state folder comes from BLOCKYARD_NODE__FOLDER or the file named by BLOCKYARD_CONFIG.",
    )
    parser.add_argument("question", choices=[question.value for question in Question], help="what to ask")
    parser.add_argument(
        "--service", choices=[name.value for name in ServiceName], required=True, help="which service to ask"
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=2.0, metavar="SECONDS", help="longest time for an answer (default: 2)"
    )
    return parser.parse_args(argv)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_TIMEOUT_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is no time above 0 and up to {_LONGEST_TIMEOUT_SECONDS:g} seconds")
    return seconds
