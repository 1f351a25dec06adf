"""Errors of runs that the command drives, which no service raises and no channel carries.

Threading: values only.
"""

from blockyard.core.errors import BlockyardError


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
