"""Names as people give them: visible, of a sensible length, or one sentence that says what is wrong."""

from __future__ import annotations

import re

from databazaar.service.errors import InvalidError

LONGEST_NAME = 200
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def visible(text: str, field: str, longest: int = LONGEST_NAME) -> str:
    """A name on one line, without spaces around it.

    >>> visible(" Harbour Bank ", "name")
    'Harbour Bank'
    """
    text = text.strip()
    if not text or not text.isprintable() or len(text) > longest:
        raise InvalidError(f"{field} must be visible text on one line of at most {longest} characters: correct it")
    return text


def prose(text: str, field: str, longest: int) -> str:
    """Text of several lines, or none. Control characters but line ends and tabs are refused."""
    text = text.replace("\r\n", "\n").strip()
    if len(text) > longest or not all(sign in "\n\t" or sign.isprintable() for sign in text):
        raise InvalidError(f"{field} must be text of at most {longest:,} characters: shorten or correct it")
    return text


def slug_of(text: str, field: str, longest: int) -> str:
    """
    >>> slug_of("north-bank", "slug", 40)
    'north-bank'
    """
    if len(text) > longest or not _SLUG.fullmatch(text):
        raise InvalidError(
            f"{field} = {text[:longest]!r} must be at most {longest} small letters and digits, with single hyphens "
            'between them: write one such as "north-bank"'
        )
    return text
