"""Files that are there in full or not at all, and files that one process has to itself."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
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
    _sync_folder(path.parent)


def append_lines(path: Path, lines: Sequence[bytes], mode: int = 0o666) -> None:
    """Adds lines to a file, which are there for good when it returns. A line that a crash left unfinished stays a line
    of its own. A link is not followed."""
    try:
        new = not path.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with open(path, "r+b", opener=lambda name, _: os.open(name, flags, mode), buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            whole = end == 0 or os.pread(file.fileno(), 1, end - 1) == b"\n"
            rest = memoryview((b"" if whole else b"\n") + b"".join(line + b"\n" for line in lines))
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        if new:
            _sync_folder(path.parent)
    except OSError as reason:
        raise BazaarError(f"{path} cannot be written ({reason.strerror}): make room for it") from None


def lines_of(path: Path, longest: int) -> Iterator[bytes]:
    """The lines of a plain file, but for those that are longer than they can be. A link is not followed."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        fits = True
        while part := file.readline(longest + 1):
            ends = part.endswith(b"\n")
            if fits and (ends or len(part) <= longest):
                yield part.rstrip(b"\n")
            fits = ends


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
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
