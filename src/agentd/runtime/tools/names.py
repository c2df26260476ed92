"""What tools are called: as they are offered, on the wire, and in the operator's lists. Touches only its arguments.

Providers take ASCII letters, digits, `_` and `-`, at most 64, so dots and everything else become `_`. Two tools that
would be one then are told apart by a piece of a digest, the same in every process.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping

MAX_WIRE = 64
"""Characters of a tool's name that every provider takes."""

_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 8


def wire_form(name: str) -> str:
    """`name` in the characters that providers take; several names may have the same."""
    return _OTHER.sub("_", name)[:MAX_WIRE] or "_"


def wire_names(*groups: Iterable[str]) -> dict[str, str]:
    """Wire name by name, no two the same. `groups` go by precedence: a name whose form no earlier group and nobody in
    its own has keeps that form. The order within a group does not matter."""
    named: dict[str, str] = {}
    taken: set[str] = set()
    marked: list[str] = []
    for group in groups:
        names = sorted(set(group) - named.keys() - set(marked))
        forms = Counter(wire_form(name) for name in names)
        plain = {
            name: wire_form(name) for name in names if forms[wire_form(name)] == 1 and wire_form(name) not in taken
        }
        named.update(plain)
        taken.update(forms)
        marked += [name for name in names if name not in plain]
    for name in marked:
        salt = 0
        while (made := _marked(name, salt)) in taken:
            salt += 1
        named[name] = made
        taken.add(made)
    return named


def _marked(name: str, salt: int) -> str:
    text = f"{name}\0{salt}" if salt else name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{wire_form(name)[: MAX_WIRE - _DIGEST - 1]}_{digest}"


def offered_names(own: Iterable[str], servers: Mapping[str, Iterable[str]]) -> dict[tuple[str, str], str]:
    """What the tools of servers are called here, by (server, tool): bare, or `<server>.<tool>` where the daemon or
    another server has one that would be called the same."""
    forms = Counter(wire_form(name) for name in set(own))
    tools = sorted({(server, tool) for server, names in servers.items() for tool in names})
    forms.update(wire_form(tool) for _, tool in tools)
    return {key: key[1] if forms[wire_form(key[1])] == 1 else f"{key[0]}.{key[1]}" for key in tools}
