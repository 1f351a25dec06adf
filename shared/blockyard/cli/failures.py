"""Errors that only the command meets.

Threading: values only.
"""

from blockyard.core.errors import BlockyardError, StartupError


class SystemLimitError(StartupError):
    """The system grants the process less than it needs."""

    code = "system-limit"
    title = "A limit of the system is too low"
    remedy = "Raise the limit named here, then start again."


class UnreachableServerError(StartupError):
    """A server that the user named for a run does not take connections."""

    code = "unreachable-server"
    title = "A server cannot be reached"
    remedy = "Start it or correct the setting named here; without the setting, an embedded server is used."


class OutputError(BlockyardError):
    """What a command has to say cannot be written."""

    code = "output"
    title = "Cannot write the output"
    remedy = "Give the command an output that takes what it writes."


class SystemCallError(BlockyardError):
    """The system refused the command something that nobody expected it to refuse."""

    code = "system-call"
    title = "The system refused a call"
    remedy = "Look at the reason named here."


class ComposeError(BlockyardError):
    """A command of docker compose failed or did not end."""

    code = "compose"
    title = "A command of docker compose failed"
    remedy = "Try the command named here by hand; --compose, --project and --compose-command say which one is run."


class StackNotFreshError(StartupError):
    """A stack that is to be measured has worked already."""

    code = "stack-not-fresh"
    title = "The stack has worked already"
    remedy = "Take it down with its volumes (down -v) and start it anew, the engines without --replay."


class NothingToDamageError(BlockyardError):
    """No block lies where a byte was to be flipped."""

    code = "nothing-to-damage"
    title = "There is nothing to damage"
    remedy = "Look at the figures above and the logs of the services: blocks did not get there."


class NodeUnreachableError(BlockyardError):
    """The node that a command is about does not answer."""

    code = "node-unreachable"
    title = "The node does not answer"
    remedy = "Start it, or name the address of its block-manager with --node."


class NodeAnswerError(BlockyardError):
    """The node answered something else than what was asked for."""

    code = "node-answer"
    title = "The node refused"
    remedy = "Look at the reason named here, and that --node names the address of a block-manager of this version."


class RunInterruptedError(BlockyardError):
    """A signal ended a run before its end."""

    code = "interrupted"
    title = "Interrupted"
    remedy = ""


class EngineCommandError(BlockyardError):
    """A demo engine that the command drives did not do what it was told."""

    code = "engine-command"
    title = "The demo engine failed"
    remedy = "Look at its log; --keep keeps that of a run on this machine."
