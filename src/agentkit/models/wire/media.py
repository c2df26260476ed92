"""Pictures and files as text: base64, data URIs, and what kind of data some bytes are. Touches only its arguments."""

from __future__ import annotations

import base64

_SIGNATURES = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF", "application/pdf"),
)

UNSENT = "[what this message held has no form in this interface]"
"""The text of a user message of which nothing else is left: an empty one would be refused, silence would mislead."""


def media_type_of(data: bytes, default: str) -> str:
    """The media type that the first bytes tell."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES if data.startswith(start)), default)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def data_uri(data: bytes, media_type: str | None, default: str) -> str:
    return f"data:{media_type or media_type_of(data, default)};base64,{encoded(data)}"


def is_link(source: str) -> bool:
    """Whether a reference is a URL rather than the id of a stored file."""
    return source.startswith(("http://", "https://"))
