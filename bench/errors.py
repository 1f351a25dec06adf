"""The one way in which a benchmark fails: what it moved is not what it got."""


class WrongBytesError(Exception):
    """Something moved wrong, so its speed is no figure."""
