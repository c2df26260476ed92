"""`agentd check`: is the configuration sound? Touches the files that are named and the environment."""

import click

from agentd.cli.configured import Configured, settings, warnings


@click.command(cls=Configured, short_help="Check the configuration; nothing is started.")
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...]) -> None:
    """Read the configuration as a start would and say everything that is wrong with it, one line a fault, with its
    file and line and its key. Nothing is started, opened or written; secrets are looked up, and shown nowhere.
    """
    found = settings(ctx, files)
    for warning in warnings(found):
        click.echo(f"agentd: {warning}", err=True)
    from agentd.config import digest

    click.echo(f"configuration of {found.agent.name} is sound: store {found.store_kind}, digest {digest(found)[:12]}")
