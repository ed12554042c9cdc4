"""How pyDVL 0.9 runs here; nothing is measured in this file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any


class InProcess:
    """What pyDVL runs its work on: here one thread of this process, where the patched NumPy is."""

    def put(self, value: Any) -> Any:
        return value

    def effective_n_jobs(self, jobs: int) -> int:
        return 1

    def executor(self, max_workers: int, **_options: Any) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=1)
