"""What a machine refuses, as one sentence with the remedy. Anything else that goes wrong is our fault, and shows."""

from __future__ import annotations

import errno

_REMEDIES = {
    errno.ENOSPC: "make room, then go on",
    errno.EDQUOT: "make room, then go on",
    errno.EFBIG: "make room or raise the limit on the size of files, then go on",
    errno.EIO: "check the disk, then go on",
    errno.EROFS: "choose a place that can be written to",
    errno.EACCES: "ask for the right to, or choose another place",
    errno.EPERM: "ask for the right to, or choose another place",
    errno.EMFILE: "close some programs or raise the limit on open files, then go on",
    errno.ENFILE: "close some programs or raise the limit on open files, then go on",
    errno.ENOMEM: "close some programs, then go on",
}
"""Errors of the machine and not of the program; a file that is not there, for one, is not among them."""


def sentence_for(failure: OSError) -> str | None:
    """None where the error is none of the machine.

    >>> sentence_for(OSError(errno.ENOSPC, "No space left on device", "run/figures/spend.png"))
    'run/figures/spend.png: No space left on device: make room, then go on'
    >>> sentence_for(FileNotFoundError(errno.ENOENT, "No such file or directory", "x"))
    """
    remedy = _REMEDIES.get(failure.errno or 0)
    if remedy is None:
        return None
    where = f"{failure.filename}: " if failure.filename is not None else ""
    return f"{where}{failure.strerror}: {remedy}"
