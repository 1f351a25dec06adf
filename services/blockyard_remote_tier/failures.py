"""What a failed request means for the blocks that needed it.

Only an answer of the server says *not found*. Everything that failed on the way leaves the blocks unknown, so that
nobody drops what may be there.
Threading: pure function.
"""

from blockyard.core.errors import (
    BlockyardError,
    CorruptBlockError,
    DeadlineExceededError,
    NoSpaceError,
    ObjectNotFoundError,
    UnavailableError,
)
from blockyard.core.vocabulary import ItemStatus


def status_of(error: BlockyardError) -> ItemStatus:
    """Item status for a request that ended in ``error``."""
    match error:
        case ObjectNotFoundError():
            return ItemStatus.NOT_FOUND
        case CorruptBlockError():
            return ItemStatus.CORRUPT
        case NoSpaceError():
            return ItemStatus.NO_SPACE
        case DeadlineExceededError():
            return ItemStatus.TIMEOUT
        case UnavailableError():
            return ItemStatus.UNKNOWN
        case _:
            return ItemStatus.IO_ERROR
