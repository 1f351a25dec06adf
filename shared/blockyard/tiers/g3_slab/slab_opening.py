"""Open a slab at start: lock, superblock, one sequential scan, and the mark that it is in use.

    lock -> folder id and superblock right? -> geometry as wanted? -> scan -> clean := 0 durable -> open
                 no: ForeignFileError              no: made anew if empty, else ConfigurationError

Threading: blocking functions, called once per life of a worker.
"""

from dataclasses import dataclass
from pathlib import Path

from blockyard.core.errors import ConfigurationError, ForeignFileError
from blockyard.core.vocabulary import Epoch
from blockyard.tiers.base import SlabFile
from blockyard.tiers.g3_slab.header_pages import HeaderPages, ScanReport
from blockyard.tiers.g3_slab.layout import SlabGeometry
from blockyard.tiers.g3_slab.slab_file import PosixSlabFile
from blockyard.tiers.g3_slab.slab_folder import create_slab, folder_id, open_locked, slab_path
from blockyard.tiers.g3_slab.superblock import Superblock, read_superblock, write_superblock


@dataclass(frozen=True, slots=True)
class OpenedSlab:
    """What a slab works with."""

    file: SlabFile
    superblock: Superblock
    pages: HeaderPages
    scan: ScanReport
    was_clean: bool
    direct_obstacle: str


def open_slab_file(folder: Path, wanted: SlabGeometry, worker_epoch: Epoch, lock_wait_seconds: float) -> OpenedSlab:
    """Open the slab of ``folder``, or make it; see ``Slab.open`` for the errors."""
    path = slab_path(folder)
    owner = folder_id(folder)
    if not path.exists():
        create_slab(folder, wanted, worker_epoch, replace=False)
    file = open_locked(path, lock_wait_seconds)
    try:
        found = _own_superblock(file, path, owner).geometry
        if found == wanted:
            return open_pages(file, str(path), worker_epoch, file.bypass_cache())
        _refuse_if_filled(file, path, found, wanted)
        create_slab(folder, wanted, worker_epoch, replace=True)
    except BaseException:
        file.close()
        raise
    file.close()
    return open_slab_file(folder, wanted, worker_epoch, lock_wait_seconds)


def open_pages(file: SlabFile, name: str, worker_epoch: Epoch, direct_obstacle: str = "") -> OpenedSlab:
    """Scan a locked slab and mark it as in use.

    Raises:
        ForeignFileError: not a slab.
        StorageError: the device failed.
    """
    found = read_superblock(file, name)
    pages = HeaderPages(file, found.geometry, found.slab_id)
    scan = pages.scan()
    in_use = found.next(worker_epoch=worker_epoch, clean=False)
    write_superblock(file, in_use)
    return OpenedSlab(file, in_use, pages, scan, found.clean, direct_obstacle)


def _own_superblock(file: PosixSlabFile, path: Path, owner: bytes) -> Superblock:
    found = read_superblock(file, str(path))
    if found.folder_id != owner:
        raise ForeignFileError("the slab belongs to another folder", file=str(path), folder=found.folder_id.hex())
    size = file.size()
    if size < found.geometry.total_bytes:
        raise ForeignFileError("the slab was cut", file=str(path), need=found.geometry.total_bytes, found=size)
    return found


def _refuse_if_filled(file: SlabFile, path: Path, found: SlabGeometry, wanted: SlabGeometry) -> None:
    scan = HeaderPages(file, found, read_superblock(file, str(path)).slab_id).scan()
    if not scan.is_empty:
        raise ConfigurationError(
            "g3.capacity or node.block_bytes changed, but the slab holds blocks; restore them or delete the file",
            file=str(path),
            slots=found.slots,
            wanted_slots=wanted.slots,
            stride=found.stride_bytes,
            wanted_stride=wanted.stride_bytes,
            blocks=scan.ready,
        )
