"""Running a command line as a program. Touches the terminal; what the commands do is theirs.

The exit codes here are the same for every program of this distribution.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

import click

OK, USAGE, INTERRUPTED, UNREAD = 0, 2, 130, 141


def prepare_terminal() -> None:
    """An old terminal shows a sign that it lacks as "?"."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def run_program(cli: click.Group, name: str, args: Sequence[str] | None = None) -> int:
    """Run a command line, by default the process's own; what is wrong becomes one line on standard error. Returns the
    exit code: that of the command, or one of this module. Any exception that is none of click's goes through."""
    if f"_{name.upper()}_COMPLETE" in os.environ:  # by it a shell asks for completions
        cli.main(args, prog_name=name)  # ends the process
    try:
        code = _invoke(cli, name, sys.argv[1:] if args is None else args)
        sys.stdout.flush()
        return code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else name
        click.echo(f"{command}: {one_line(error.format_message())} See '{command} --help'.", err=True)
        return USAGE
    except click.ClickException as error:
        click.echo(f"{name}: {error.format_message()}", err=True)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo(f"{name}: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes standard output at exit, which would raise once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD


def _invoke(cli: click.Group, name: str, args: Sequence[str]) -> int:
    # Not by `cli.main`, which has exit codes of its own for an interrupt and for a reader that went away.
    try:
        with cli.make_context(name, list(args)) as ctx:
            cli.invoke(ctx)
    except click.exceptions.Exit as end:
        return end.exit_code
    return OK


def one_line(text: str) -> str:
    """A message that cannot break out of its line, nor take over the terminal with control characters."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text).split())
