"""The proof run on the stack, by the command that a user would call: nodes are killed, blocks are damaged.

It comes last: what it has killed and damaged stays so.
"""

import json
import shlex
import sysconfig
from pathlib import Path
from typing import Any, Final

from tests.compose.smoke.compose import Compose, compose_program
from tests.compose.smoke.plan import say
from tests.compose.smoke.shell import SmokeError

_LIMIT_SECONDS: Final = 300
_SHOWN: Final = (
    "wrong_bytes",
    "verified_blocks",
    "g4_cross_node_hits",
    "after_kill_hits",
    "warm_restart_g3_blocks",
    "checksum_failures",
)


def prove(compose: Compose, *, short: bool) -> dict[str, Any]:
    """Run it; returns its summary.

    Raises:
        SmokeError: an expectation of it does not hold; holds what it said.
    """
    program = Path(sysconfig.get_path("scripts")) / "blockyard"
    files = [word for file in compose.files for word in ("--compose", str(file))]
    command = shlex.join((str(compose_program()), "--env-file", str(compose.folder / "no-settings.env")))
    options = ("--project", compose.project, "--compose-command", command, *(["--short"] * short))
    seconds = ("--seconds", str(_LIMIT_SECONDS))
    done = compose.shell.attempt(program, "demo", "--json", *seconds, *options, *files, seconds=_LIMIT_SECONDS + 30.0)
    try:
        summary: dict[str, Any] = json.loads(done.out)
    except ValueError:
        raise SmokeError(f"the proof run ended with status {done.status}:\n{done.text[-2_000:]}") from None
    if done.status != 0 or not summary["ok"]:
        reasons = "\n".join([*summary["failures"], f"not reached: {', '.join(summary['not_reached'])}"])
        raise SmokeError(f"the proof run failed:\n{reasons}\n{done.err[-2_000:]}")
    say(f"  proof run: {', '.join(f'{name} {summary[name]}' for name in _SHOWN)}")
    return summary
