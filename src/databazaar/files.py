"""Files that are there in full or not at all, files that one process has to itself, and files that came from others.

A folder may come from anybody. What is read or written `within` one follows no link on the way from there, and reads
nothing but plain files: a link leads elsewhere, and a pipe or a device has no end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path

from databazaar.errors import BazaarError, UncheckableError

LARGEST_NOTE = 2**26
"""Bytes of what is read as JSON, unless something else is said: more than any run of ours writes."""
PATIENCE = 0.1
"""Seconds for which `lock` waits: a process that only looks at a file lets go of it sooner."""
_DRAFT = re.compile(r"\..+\.[0-9a-f]{16}\.partial", re.DOTALL)


def write_whole(path: Path, content: bytes, mode: int = 0o666, within: Path | None = None) -> None:
    """Writes a file that is there in full or not at all, also after a power cut. Makes its folder where needed.

    It has `mode` from its first byte on, less what the process's umask takes away. Whatever had its name before, a link
    or a pipe too, is replaced and not written to. Drafts that a killed process has left in the folder are removed.
    """
    try:
        write_pieces(path, [content], mode, within)
    except OSError as reason:
        raise BazaarError(f"{path} cannot be written ({reason.strerror}): choose another place") from None


def write_pieces(
    path: Path, pieces: Sequence[bytes | memoryview], mode: int = 0o666, within: Path | None = None
) -> None:
    """As `write_whole`, from several pieces of memory; where it fails it is an OSError."""
    with _opened(path.parent, within, make=True) as folder:
        _sweep(folder)
        file, draft = _new_draft(folder, path.name, mode)
        try:
            with file:
                _write(file, *pieces)
                os.rename(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=folder)
            raise
        os.fsync(folder)


def _new_draft(folder: int, name: str, mode: int) -> tuple[FileIO, str]:
    """A new file under a name that nobody can foresee, held so that no other writer takes it for a leftover."""
    while True:
        draft = f".{name[:60]}.{secrets.token_hex(8)}.partial"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = FileIO(os.open(draft, flags, mode, dir_fd=folder), "wb")
        with contextlib.suppress(OSError):  # a disk that knows no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file, draft
        file.close()  # swept away before it was held


def _write(file: FileIO, *pieces: bytes | memoryview) -> None:
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            rest = rest[file.write(rest) :]
    os.fsync(file.fileno())


def _sweep(folder: int) -> None:
    """Removes drafts that nobody holds any more."""
    for name in os.listdir(folder):
        if _DRAFT.fullmatch(name):
            with contextlib.suppress(OSError), FileIO(_open_plain(name, folder), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def _opened(folder: Path, within: Path | None, make: bool = False) -> Iterator[int]:
    """A folder as a descriptor. Below `within` no part of its path may be a link."""
    if within is None and make:
        folder.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(folder if within is None else within, flags)
    try:
        for part in () if within is None else folder.relative_to(within).parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            try:
                inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError as reason:
                if reason.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise BazaarError(f"{folder} is a link or no folder: put a folder in its place") from None
                raise
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _open_plain(name: str, folder: int) -> int:
    """The descriptor of a plain file; what is none is an OSError, and opening it does nothing to it."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ENXIO, "no plain file")
    return descriptor


def open_plain(path: Path, within: Path | None = None) -> FileIO:
    """Opens a plain file for reading. A link, a pipe, a socket or a device in its place is refused."""
    try:
        with _opened(path.parent, within) as folder:
            return FileIO(_open_plain(path.name, folder), "rb")
    except PermissionError:
        raise UncheckableError(f"{path} cannot be read (no permission): ask its owner for the right to") from None
    except IsADirectoryError:
        raise _not_plain(path) from None
    except OSError as reason:
        if reason.errno in (errno.ELOOP, errno.ENXIO):
            raise _not_plain(path) from None
        raise


def _not_plain(path: Path) -> BazaarError:
    return BazaarError(f"{path} is no plain file but a link, a pipe or the like: it is not read")


def read_plain(path: Path, within: Path | None = None, most: int = LARGEST_NOTE) -> bytes:
    """The content of a plain file of at most `most` bytes. Where there is none it is a FileNotFoundError."""
    with open_plain(path, within) as file:
        content = bytearray()
        while len(content) <= most and (piece := file.read(min(2**20, most + 1 - len(content)))):
            content += piece
    if len(content) > most:
        raise BazaarError(f"{path} has more than {most:,} bytes: that is not ours, and it is not read")
    return bytes(content)


def append_lines(path: Path, lines: Sequence[bytes], mode: int = 0o666) -> None:
    """Adds lines to a file, which are there for good when it returns. A line that a crash left unfinished stays a line
    of its own. A link is not followed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with _opened(path.parent, None) as folder:
            new = not os.path.lexists(path)
            with FileIO(os.open(path.name, flags, mode, dir_fd=folder), "r+b") as file:
                end = file.seek(0, os.SEEK_END)
                whole = end == 0 or os.pread(file.fileno(), 1, end - 1) == b"\n"
                _write(file, (b"" if whole else b"\n") + b"".join(line + b"\n" for line in lines))
            if new:
                os.fsync(folder)
    except OSError as reason:
        raise BazaarError(f"{path} cannot be written ({reason.strerror}): make room for it") from None


def lines_of(path: Path, longest: int) -> Iterator[bytes]:
    """The lines of a plain file, but for those that are longer than they can be."""
    with io.BufferedReader(open_plain(path)) as file:
        fits = True
        while part := file.readline(longest + 1):
            ends = part.endswith(b"\n")
            if fits and (ends or len(part) <= longest):
                yield part.rstrip(b"\n")
            fits = ends


def lock(path: Path, otherwise: str, within: Path | None = None) -> FileIO:
    """Holds an existing file for this process alone, until what is returned is closed or the process ends, however
    that comes. Where another holds it, `otherwise` is the sentence that says so."""
    file, patience = open_plain(path, within), time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > patience:
                file.close()
                raise BazaarError(otherwise) from None
            time.sleep(0.02)


@contextlib.contextmanager
def unless_locked(path: Path, within: Path | None = None) -> Iterator[bool]:
    """Keeps others from locking a file meanwhile; False where one holds it already."""
    with open_plain(path, within) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def alone(path: Path) -> contextlib.AbstractContextManager[None]:
    """One process at a time, each waiting for the one before it. The file holds nothing, and is made where needed."""
    return _locked(path, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)


def _held(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Holds a folder, not a link to one; where another process does, it is an OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return _locked(folder, flags, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def _locked(path: Path, flags: int, operation: int) -> Iterator[None]:
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A draft of a folder, to be filled; in the end it gets its name, all of it or nothing, also after a power cut.

    Drafts of that name which a killed process has left are removed. Where something fails, parents that are new go as
    well.
    """
    missing = [folder for folder in path.parents if not folder.exists()]  # the deepest first
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(".*.partial"):
            if _DRAFT.fullmatch(left.name) and left.name.removeprefix(".").rsplit(".", 2)[0] == path.name:
                with contextlib.suppress(OSError), _held(left):
                    shutil.rmtree(left)
        draft.mkdir()
        with _held(draft):
            yield draft
            draft.rename(path)
        with _opened(path.parent, None) as parent:
            os.fsync(parent)
    except BaseException as reason:
        shutil.rmtree(draft, ignore_errors=True)
        for made in missing:
            with contextlib.suppress(OSError):
                made.rmdir()
        if isinstance(reason, OSError):
            raise BazaarError(f"{path} cannot be made ({reason.strerror}): give another folder with --out") from None
        raise
