"""The command `agentkit`. Touches files, the terminal and, for `replay`, a store.

What a command needs is imported in its body: `--help` answers before anything of the library is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from agentkit import __version__

from .converting import convert
from .faults import BUG, EPILOG
from .looking import check, count, inspect
from .program import USAGE, prepare_terminal, run_program
from .replaying import replay

__all__ = ["EPILOG", "cli", "main", "run"]


def main() -> NoReturn:
    """The program: run the command line and end the process."""
    prepare_terminal()
    sys.exit(run())


def run(args: Sequence[str] | None = None) -> int:
    """Run a command line, by default the process's own; what is wrong becomes one line on standard error. Returns one
    of the documented exit codes."""
    try:
        return run_program(cli, "agentkit", args)
    except Exception:
        # An exit code of its own, since the interpreter's is the one that `check` has for findings.
        from traceback import print_exc

        print_exc()
        click.echo("agentkit: this is a fault of agentkit itself; please report it with the lines above", err=True)
        return BUG


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(__version__, prog_name="agentkit")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Look into recorded conversations of agents: where the tokens and the money went, whether a provider would accept
    them, and how they grow as a stored context.

    FILE is a transcript: Claude Code, Codex, OpenAI, Anthropic, LangChain, SWE-agent and others; "-" is standard input.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit(USAGE)


for command in (inspect, count, check, convert, replay):
    cli.add_command(command)
