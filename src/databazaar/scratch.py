"""Files in place of memory: without a name, so that a process that is killed leaves nothing behind."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from databazaar.errors import BazaarError

IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
"""File systems that are memory again."""
NOT_WRITTEN = (
    "a file for a round's updates could not be written in {folder} ({reason}): "
    "make room on its disc, and resume the run"
)


def file_of(size: int, folder: Path) -> BinaryIO:
    """A file of so many bytes that has no name. A disc that is too small says so now, and not when it is written to."""
    file: BinaryIO = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    except OSError:
        file.close()
        raise
    return file


def mapped(size: int, folder: Path) -> memoryview:
    """So many bytes to write to and to read from, which are a file."""
    try:
        with file_of(size, folder) as file:
            return memoryview(mmap.mmap(file.fileno(), size))
    except OSError as reason:
        raise BazaarError(NOT_WRITTEN.format(folder=folder, reason=reason.strerror)) from None


def disc_for(size: int, folders: Sequence[Path]) -> Path | None:
    """The first of these folders, or what there is already on the way to it, that may be written to and is on a disc
    with so much room."""
    open_to_us = (path for path in map(_there, folders) if os.access(path, os.W_OK) and not in_memory(path))
    return next((path for path in open_to_us if free_on(path) >= size), None)


def free_on(folder: Path) -> int:
    """Bytes that may still be written there."""
    return shutil.disk_usage(_there(folder)).free


def in_memory(folder: Path) -> bool:
    """Whether files there are memory; as far as the system says so."""
    number = _there(folder).stat().st_dev
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    kinds = {line.split()[2]: line.partition(" - ")[2].split(" ")[0] for line in mounts}
    return kinds.get(f"{os.major(number)}:{os.minor(number)}") in IN_MEMORY


def _there(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.is_dir())
