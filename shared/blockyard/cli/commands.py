"""The commands ``up``, ``demo``, ``why`` and ``loads``: options, help, and how errors become exit codes.

Commands load what they run when they are called, so that help and wrong usage are answered at once.
Threading: one event loop in the main thread; SIGINT, SIGTERM and SIGHUP cancel what runs, which then ends in order.
"""

import contextlib
import shlex
import sys
from collections.abc import Coroutine, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from blockyard.cli.display import Display, open_display, writing
from blockyard.cli.exit_codes import (
    EXIT_CODES_TEXT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_START,
    EXIT_USAGE,
)
from blockyard.cli.failures import OutputError, RunInterruptedError
from blockyard.cli.open_files import require_open_files
from blockyard.cli.standard_streams import complain
from blockyard.cli.system_calls import meaning_of
from blockyard.cli.until_signal import run_until_signal
from blockyard.core.errors import BlockyardError, ConfigurationError, NoSpaceError, StartupError
from blockyard.runtime.settings_source import load_settings, shield_environment

if TYPE_CHECKING:
    from blockyard.cli.demo_plan import DemoPlan
    from blockyard.cli.demo_report import DemoReport

_COMPOSE_COMMAND: Final = "docker compose"
_MAX_SECONDS: Final = 86_400.0

app = typer.Typer(
    name="blockyard",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="KV block manager for LLM inference: blocks in engine memory, host memory, local disk and object storage.",
    epilog=EXIT_CODES_TEXT,
)


def _seconds(value: float) -> float:
    # Written so that what is no number is out of bounds too.
    if not 1.0 <= value <= _MAX_SECONDS:
        raise typer.BadParameter(f"{value:g} is not a number of seconds from 1 to {_MAX_SECONDS:.0f}")
    return value


Keep = Annotated[bool, typer.Option("--keep", help="Leave the run folder (data and logs) in place at the end.")]


@app.command(epilog=EXIT_CODES_TEXT)
def up(keep: Keep = False) -> None:
    """Run two nodes that replay a real trace, until Ctrl-C.

    Starts embedded NATS, Valkey and SeaweedFS on loopback ports of their own choice, and nodes a and b: each a
    block-manager, an offload-worker, a remote-tier and a demo engine. Shows one live table and the addresses of the
    REST docs. Ctrl-C ends everything and leaves nothing behind: exit code 0, or 130 in the first moment, while the
    command itself is still loading.

    Servers of your own are used when BLOCKYARD_NATS__URL, BLOCKYARD_REDIS__URL or BLOCKYARD_G4__ENDPOINT_URL are set;
    one that takes no connection within three seconds ends the command.
    """
    with _exit_codes(), open_display(sys.stdout) as display:
        require_open_files()
        settings = load_settings()
        from blockyard.cli.up import run_up

        try:
            run_until_signal(run_up(settings, display, keep=keep), lambda: _say_stopping(display))
        except RunInterruptedError:
            display.say("stopped")  # Ctrl-C is how one ends it: that is no failure


@app.command(epilog=EXIT_CODES_TEXT)
def demo(
    json_summary: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", callback=_seconds, help="Give up after this long: 1 to 86400.")
    ] = 175.0,
    keep: Keep = False,
    short: Annotated[bool, typer.Option("--short", help="A smaller run with the same phases.")] = False,
    compose: Annotated[
        list[Path] | None,
        typer.Option("--compose", metavar="FILE", help="Run on a compose stack that is up; may be repeated."),
    ] = None,
    project: Annotated[str, typer.Option("--project", help="With --compose: name of the compose project.")] = "",
    compose_command: Annotated[
        str, typer.Option("--compose-command", help="With --compose: program and first arguments.")
    ] = _COMPOSE_COMMAND,
    unsafe_skip_verification: Annotated[bool, typer.Option("--unsafe-skip-verification", hidden=True)] = False,
) -> None:
    """Prove that blocks travel and survive: the run of two nodes, bounded in time, with a summary.

    A computes and offloads. B finds A's blocks through the index and the object store. A is killed; B still serves A's
    blocks. B's services are killed and restarted; its disk tier is warm. One byte is flipped on disk and one in the
    object store; both are found, counted, and become a miss. An engine checks every byte that it is given.

    Takes about a minute (--short: half of that) and never more than --seconds and some more for cleaning up. Wants
    1.8 GiB free in the folder for temporary files (TMPDIR; --short: 0.5 GiB), and gives all of it back.

    With --compose the run takes place on a stack that docker compose has started with its profile demo: freshly, with
    engines that do not replay by themselves, and with tiers of a size that lets every phase show something (the run
    says which setting does not fit; deploy/compose.proof.yml sets them all). Containers are killed with docker compose,
    services and engines are asked at their published ports. At the end the stack stays as the run has left it: node a
    is down, two blocks are damaged.

    Exit code 0 only when every expectation holds; each failed one is named. When the run ends early, its cause is
    named, and which checks were not reached. A time limit that comes before everything has started is exit code 3.
    """
    stream = sys.stderr if json_summary else sys.stdout
    with _exit_codes():
        with open_display(stream) as display:
            from blockyard.cli.demo_plan import FULL, SHORT

            plan = SHORT if short else FULL
            if compose:
                _refuse("with --compose", {"--keep": keep, "--unsafe-skip-verification": unsafe_skip_verification})
                run = _on_compose(plan, compose, project, compose_command, display, seconds)
            else:
                own = {"--project": bool(project), "--compose-command": compose_command != _COMPOSE_COMMAND}
                _refuse("without --compose", own)
                require_open_files()
                settings = load_settings()
                from blockyard.cli.local_demo import run_local_demo

                skip = unsafe_skip_verification
                run = run_local_demo(plan, settings, display, limit_seconds=seconds, keep=keep, skip_verification=skip)
            report = run_until_signal(run, lambda: _say_stopping(display))
        with writing():
            sys.stdout.write(report.to_json() + "\n" if json_summary else report.to_text())
            sys.stdout.flush()
    if not report.ready:
        raise typer.Exit(EXIT_START)
    raise typer.Exit(EXIT_FAILED if report.failures() else EXIT_OK)


Node = Annotated[
    str,
    typer.Option(
        "--node", metavar="URL", help="Address of the block-manager. Default: that of the node folder in the settings."
    ),
]


class Switch(StrEnum):
    """Positions of a switch."""

    ON = "on"
    OFF = "off"


@app.command(epilog=EXIT_CODES_TEXT)
def why(request: Annotated[str, typer.Argument(help="Name of the request at its engine.")], node: Node = "") -> None:
    """Say why a request was not served further from lower tiers.

    The node remembers its latest 4,096 requests since its start: what was found for each at its admission, what was
    loaded, and what ended the hit.
    """
    with _exit_codes():
        from blockyard.cli import operate

        text = operate.why(request, node)
        with writing():
            sys.stdout.write(text)
            sys.stdout.flush()


@app.command(epilog=EXIT_CODES_TEXT)
def loads(to: Annotated[Switch, typer.Argument(help="What to switch loads to.")], node: Node = "") -> None:
    """Switch the loads of a node off or on while it runs.

    Off, its engines compute everything themselves; blocks are stored as before, and loads that run end as they would.
    A restart of the block-manager switches loads on.
    """
    with _exit_codes():
        from blockyard.cli import operate

        text = operate.switch_loads(to is Switch.ON, node)
        with writing():
            sys.stdout.write(text)
            sys.stdout.flush()


def _on_compose(
    plan: "DemoPlan", files: list[Path], project: str, command: str, display: Display, seconds: float
) -> "Coroutine[object, object, DemoReport]":
    from blockyard.cli.compose.command import ComposeCommand
    from blockyard.cli.compose.demo import PROFILE, run_compose_demo

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigurationError("not a command line", key="--compose-command", reason=str(error)) from None
    if not words:
        raise ConfigurationError("names no program", key="--compose-command")
    return run_compose_demo(plan, ComposeCommand(words, files, project, PROFILE), display, limit_seconds=seconds)


def _refuse(where: str, options: dict[str, bool]) -> None:
    """Refuse options that were given and mean nothing."""
    if given := [name for name, is_given in options.items() if is_given]:
        raise ConfigurationError(f"has no meaning {where}", key=", ".join(given))


def run_command() -> int:
    """Do what the command line says; the exit code."""
    shield_environment()
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else EXIT_OK if end.code is None else EXIT_FAILED
    except OSError as error:
        # Help and usage are written by the command line library.
        complain(meaning_of(error))
        return EXIT_FAILED
    return EXIT_OK


@contextlib.contextmanager
def _exit_codes() -> Iterator[None]:
    """Turn errors into a sentence on stderr and an exit status."""
    try:
        yield
    except RunInterruptedError:
        code = EXIT_INTERRUPTED
    except ConfigurationError as error:
        code = EXIT_USAGE
        complain(error)
    except BlockyardError as error:
        code = EXIT_START if isinstance(error, StartupError | NoSpaceError) else EXIT_FAILED
        complain(error)
    except OSError as error:
        meaning = meaning_of(error)
        code = EXIT_START if isinstance(meaning, StartupError) else EXIT_FAILED
        complain(meaning)
    else:
        return
    raise typer.Exit(code)


def _say_stopping(display: Display) -> None:
    # Called by the event loop, where nobody would catch it; the run ends anyway.
    with contextlib.suppress(OutputError):
        display.say("stopping ...")
