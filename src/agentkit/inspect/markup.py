"""HTML from values, safe by construction: a `str` becomes text or an attribute's value, only `Html` is markup. Touches
only its arguments.

Transcripts hold whatever an agent met, pages written to attack it included. So no function here takes markup from a
caller, and the one door for data, `data_script`, leaves no character in it that a browser could read as markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

Child: TypeAlias = "str | int | Html | Iterable[Child] | None"

VOID = frozenset({"meta", "br", "rect"})
_MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


class Html(str):
    """Markup that this module has made; never made from a transcript's text elsewhere."""

    __slots__ = ()


def visible(text: str) -> str:
    """`text` with U+FFFD for what would not show or would change how its surroundings show: control characters,
    terminal escapes, text-direction marks, lone surrogates. Tabs and line ends stay."""
    return _UNPRINTABLE.sub("\ufffd", text)


def escape(text: str) -> Html:
    """`text` as markup that shows it, in content and in quoted attributes alike."""
    return Html(re.sub("[&<>\"']", lambda found: _MARKUP[found[0]], visible(text)))


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Html:
    """An element. Attributes: `_` in a name stands for `-`, a closing `_` is dropped (`class_`); None and False leave
    one out, True writes the bare name."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID and not children:
        return Html(f"<{name}{written}>" if name != "rect" else f"<{name}{written}/>")
    return Html(f"<{name}{written}>{fragment(*children)}</{name}>")


def fragment(*children: Child) -> Html:
    """Children one after another, without an element around them."""
    return Html("".join(_written(child) for child in children))


def _written(child: Child) -> str:
    if isinstance(child, Html):
        return child
    if child is None:
        return ""
    if isinstance(child, (str, int)):
        return escape(str(child))
    return fragment(*child)


def _attribute(key: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def style_sheet(css: str) -> Html:
    """A style element from this package's own text."""
    return Html(f"<style>{_own(css, 'style')}</style>")


def script(javascript: str) -> Html:
    """A script element from this package's own text."""
    return Html(f"<script>{_own(javascript, 'script')}</script>")


def _own(text: str, element: str) -> str:
    if f"</{element}" in text.lower() or "<!--" in text:
        raise ValueError(f"a {element} of this package would end its own element")
    return text


def data_script(identity: str, value: Any) -> Html:
    """`value` as JSON in an element that browsers do not run, for a script to read.

    `<`, `>`, `&`, U+2028 and U+2029 are written as JSON escapes, so that nothing in it ends the element, opens a
    comment or ends a line of script.
    """
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return Html(f'<script type="application/json" id="{escape(identity)}">{text}</script>')


def source_hash(text: str) -> str:
    """The name under which a content security policy admits exactly this inline style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
