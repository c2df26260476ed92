"""The command `agentd`. Touches the terminal; each subcommand is a module of its own, imported on use.

Such a module imports click at its top and everything else in the body of its command, since help has to look at all of
them: `--help` answers before anything of the daemon is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from agentkit import __version__
from agentkit.cli.program import USAGE, prepare_terminal, run_program

__all__ = ["EPILOG", "cli", "main", "run"]

EPILOG = """\b
Exit codes:
    0  done, or drained
    1  an error
    2  the command line or the configuration is wrong
    3  the prompt was not completed
    4  no model can be reached
    5  refused
    6  a required MCP server is down
    7  out of budget
    8  the store failed, is held by another, or its lease was lost
  124  the deadline passed
  130  interrupted
  141  whoever read the output went away
"""

COMMANDS = {
    "capabilities": "agentd.cli.capabilities",
    "chat": "agentd.cli.chat",
    "check": "agentd.cli.check",
    "inspect": "agentd.cli.inspect",
    "memory": "agentd.cli.memory",
    "prompt": "agentd.cli.prompt",
    "run": "agentd.cli.running",
    "schema": "agentd.cli.schema",
    "tasks": "agentd.cli.tasks",
}
"""Subcommands and the modules that hold them, each as `command`."""


class Commands(click.Group):
    """A group whose commands are imported when they are asked for. A line that begins with an option of `run` means
    `run`: `agentd -c agent.yaml` is the usual start."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {name for option in self.get_params(ctx) for name in option.opts}
        if args and args[0].startswith("-") and args[0] not in own:
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(COMMANDS[cmd_name]).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{COMMANDS[cmd_name]}.command is no command")
        return command


@click.group(
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="agentd")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Run an agent as a daemon: its conversations are durable and keep themselves within the model's window.

    One YAML or JSON document configures it; AGENTD_ variables and flags such as --context.compact_at lay over that.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit(USAGE)


def main() -> NoReturn:
    """The program: run the command line and end the process."""
    prepare_terminal()
    sys.exit(run())


def run(args: Sequence[str] | None = None) -> int:
    """Run a command line, by default the process's own. What is wrong is said on standard error. Returns one of the
    documented exit codes."""
    return run_program(cli, "agentd", args)
