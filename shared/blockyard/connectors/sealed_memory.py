"""Anonymous memory files that a node may map: their size is sealed.

Shrinking memory that a node maps would kill the node's worker at its next access, so nodes take sealed files only.
Threading: pure functions.
"""

import fcntl
import mmap
import os


def whole_pages(size_bytes: int) -> int:
    """``size_bytes`` rounded up to whole pages."""
    return -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


def sealed_memory(name: str, size_bytes: int) -> int:
    """Descriptor of a new, zeroed memory file of at least ``size_bytes``, in whole pages; the caller closes it.

    Raises:
        OSError: the system has no room for it.
    """
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, whole_pages(size_bytes))
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
