"""Options that name several of a few things, with commas between them."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from databazaar.errors import BazaarError


def named(given: str, option: str, known: Collection[str], things: str) -> list[str]:
    """The names that were given, as they were; each is one of the `known` ones."""
    names = [name.strip() for name in given.split(",") if name.strip()]
    if not names:
        raise BazaarError(f"{option} is empty: use some of {', '.join(known)}")
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}? " if close else ""
            raise BazaarError(f"{option}: {name!r} is unknown: {hint}The {things} are {', '.join(known)}")
    return names
