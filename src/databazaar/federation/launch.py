"""FLARE's server, with the market's own door in the place of FLARE's drivers.

It holds the lock that `server` handed down for as long as it lives, with its process id in the file.
"""

from __future__ import annotations

import os
import runpy

LOCK_FD = "DATABAZAAR_LOCK_FD"
_PROGRAM = "nvflare.private.fed.app.server.server_train"


def main() -> None:
    from databazaar.federation import door

    os.write(int(os.environ.pop(LOCK_FD)), str(os.getpid()).encode())
    door.install()
    runpy.run_module(_PROGRAM, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
