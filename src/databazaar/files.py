"""Files that are there in full or not at all, and files that one process has to itself."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from databazaar.errors import BazaarError


def write_whole(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Writes a file that is there in full or not at all, also after a power cut. Makes its folder where needed.

    It has `mode` from its first byte on, less what the process's umask takes away.
    """
    draft = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as reason:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise BazaarError(f"{path} cannot be written ({reason.strerror}): choose another place") from None
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def lock(path: Path, otherwise: str) -> FileIO:
    """Holds an existing file for this process alone, until what is returned is closed or the process ends, however
    that comes. Where another holds it, `otherwise` is the sentence that says so."""
    file = FileIO(path, "rb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise BazaarError(otherwise) from None
    return file


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """One process at a time, each waiting for the one before it. The file holds nothing, and is made where needed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
