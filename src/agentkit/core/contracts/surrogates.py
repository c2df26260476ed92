"""Lone surrogates: halves of a UTF-16 pair that a `str` can hold and UTF-8 cannot. Touches only its arguments."""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"

_ANY = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def has_surrogates(text: str) -> bool:
    """Whether `text` cannot be written as UTF-8."""
    if text.isascii():
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def replace_surrogates(text: str) -> str:
    """`text` with U+FFFD for each lone surrogate; two halves in a row become the character they spell.

    The same object where there is none.
    """
    return _ANY.sub(_mended, text) if has_surrogates(text) else text


def _mended(match: re.Match[str]) -> str:
    halves = match[0]
    if len(halves) == 1:
        return REPLACEMENT
    return chr(0x10000 + ((ord(halves[0]) - 0xD800) << 10) + (ord(halves[1]) - 0xDC00))
