"""The ways in which a benchmark fails: what it moved is not what it got, or the program beside it is not there."""


class WrongBytesError(Exception):
    """Something moved wrong, so its speed is no figure."""


class ChildError(Exception):
    """A program of another interpreter failed, ended or took too long; the end of its log is in the message."""


class MissingPeerError(Exception):
    """What a case compares with is not installed; the message says why, and what installs it."""
