"""Writing for people and files: lines at once, files whole or not at all, what a store says."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from .faults import Unwritable

if TYPE_CHECKING:
    from agentkit.inspect.columns import Style


def say(text: str) -> None:
    """A line at once, for a reader who waits for it."""
    click.echo(text)
    sys.stdout.flush()


def write(path: str, text: str) -> None:
    """UTF-8 to standard output, or to a file that is there whole or not at all. What renders text has replaced or
    escaped whatever UTF-8 has no form for."""
    data = text.encode("utf-8")
    if path == "-":
        click.echo(data, nl=False)
        return
    draft = f"{path}.{os.getpid()}.part"
    try:
        with open(draft, "wb") as out:
            out.write(data)
        os.replace(draft, path)
    except OSError as error:
        with suppress(OSError):
            os.remove(draft)
        raise Unwritable(f"cannot write {path}: {error.strerror or error}") from None


@contextmanager
def store_errors(store_file: str) -> Iterator[None]:
    """What goes wrong with a store becomes Unwritable, which names its file."""
    from agentkit.core.contracts.errors import AgentKitError

    try:
        yield
    except BrokenPipeError:  # an OSError, but of the terminal
        raise
    except AgentKitError as error:
        raise Unwritable(f"{store_file}: {error}") from None
    except OSError as error:
        raise Unwritable(f"{store_file}: {error.strerror or error}") from None


def style_of_terminal() -> Style:
    """Colours and signs that standard output can show."""
    from agentkit.inspect.columns import Style

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    try:
        "█▁…–".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return Style(colour, unicode=False)
    return Style(colour)
