"""What ends a command: its exit codes, and errors of one line each."""

from __future__ import annotations

from typing import Any

import click

from .program import INTERRUPTED, one_line

FINDINGS, UNREADABLE, UNWRITABLE, BUG = 1, 3, 4, 70

EPILOG = """\b
Exit codes:
    0  done
    1  check found problems
    2  the command line is wrong
    3  an input cannot be read, or is no transcript (the others are done)
    4  a store or an output file cannot be used
   70  a fault of agentkit itself
  130  interrupted
  141  whoever read the output went away
"""


class Unreadable(click.ClickException):
    """An input cannot be read. One line on standard error."""

    exit_code = UNREADABLE

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))

    def show(self, file: Any = None) -> None:
        click.echo(f"agentkit: {self.message}", file=file, err=file is None)


class Unwritable(Unreadable):
    """A store or an output file cannot be used."""

    exit_code = UNWRITABLE


class Interrupted(Unreadable):
    """Ended by the user, with something to say about it."""

    exit_code = INTERRUPTED
