"""What is wrong with a configuration, and where. Values only.

```
ConfigError       every fault of a configuration at once        AgentKitError, ValueError
```
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from agentkit.core.contracts.errors import AgentKitError

Path: TypeAlias = tuple[str | int, ...]
"""Keys from the root of the document on; an int is a place in a list, from 0."""

MOST_TEXT = 80
"""Characters of a key or a value that a message shows: enough to find it again, too few to fill a screen."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was given: a file and its line (from 1), or the name of a variable or flag."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


NOWHERE = Origin("the configuration")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: where, at which key, what was found and what would be right.

    `origin` is NOWHERE for a key that nobody gave; `path` is empty for a file that cannot be read as a document.
    `found` never holds the text of a secret.
    """

    origin: Origin
    path: Path
    found: str
    want: str

    def __str__(self) -> str:
        where, key = str(self.origin), key_text(self.path)
        named = [where, key] if key and where != f"--{key}" else [where]
        return one_line(": ".join([*named, f"{self.found}; {self.want}"]))


class ConfigError(AgentKitError, ValueError):
    """The configuration cannot be used."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self.faults = tuple(faults)
        super().__init__(*(["\n".join(map(str, self.faults))] if self.faults else []))


def key_text(path: Path) -> str:
    """`a2a.principals[0].role`, the way messages and flags write a path."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{clipped(step)}" if text else clipped(step)
    return text


def clipped(text: str) -> str:
    """The beginning of a long text."""
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"


def one_line(text: str) -> str:
    """A message that neither breaks out of its line nor takes over a terminal with control characters."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text).split())
