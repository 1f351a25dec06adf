"""What a failed request means for the blocks that needed it, and how loudly it is told.

Only an answer of the server says *not found*. Everything that failed on the way leaves the blocks unknown, so that
nobody drops what may be there.
Threading: one event loop.
"""

from typing import Final

from blockyard.core.errors import (
    AccessDeniedError,
    BlockyardError,
    CorruptBlockError,
    DeadlineExceededError,
    NoSpaceError,
    ObjectNotFoundError,
    UnavailableError,
)
from blockyard.core.vocabulary import ItemStatus, PackId
from blockyard.runtime.logs import get_logger

_log: Final = get_logger(__name__)


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


def log_failure(what: str, pack: PackId, error: BlockyardError) -> None:
    """Tell that a pack was not moved; quietly where the store is away, which is told once when it is noticed."""
    away = isinstance(error, UnavailableError) and not isinstance(error, AccessDeniedError)
    log = _log.debug if away else _log.warning
    log(what, pack=pack.hex(), reason=str(error))
