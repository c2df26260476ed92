"""`agentd prompt`: the built-in prompt to start from, and the prompt as a context gets it. Touches the files and the
folders of skills that are named and, for reading, the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentd.cli.configured import Configured, settings, warnings
from agentd.cli.starting import StoreFailed

if TYPE_CHECKING:
    from agentd.config import Settings
    from agentd.context.prompt import Prompt, StandingData, VolatileData


@click.command(cls=Configured, short_help="Print the built-in prompt, or the prompt of a context.")
@click.option("--default", "default", is_flag=True, help="The built-in templates, as YAML to start from.")
@click.option("--render", "context", metavar="CONTEXT", help="The prompt as the context of this id gets it.")
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], default: bool, context: str | None) -> None:
    """Print the built-in templates as a configuration that says the same, or render the configured ones for a stored
    context, with its plan and the keys in memory; root may not be stored yet. Nothing is started or written.
    """
    if default == (context is not None):
        raise click.UsageError("it takes one of --default and --render CONTEXT.", ctx)
    if context is None:
        click.echo(default_yaml(), nl=False)
        return
    found = settings(ctx, files)
    for warning in warnings(found):
        click.echo(f"agentd: {warning}", err=True)
    text, failures = _rendered(found, context)
    for failure in failures:
        click.echo(f"agentd: {failure}", err=True)
    click.echo(text, nl=False)


def default_yaml() -> str:
    """A document that gives the built-in templates."""
    from agentkit.core.contracts.errors import MissingExtraError

    try:
        import agentd.config  # noqa: F401  (it names the extra where it is not installed)
        from agentd.context.prompt_text import STANDING, VOLATILE
    except MissingExtraError as error:
        raise click.ClickException(str(error)) from None

    def block(key: str, text: str) -> str:
        lines = "".join(f"      {line}\n" if line else "\n" for line in text.splitlines())
        return f"    {key}: |\n{lines}"

    return f"context:\n  template:\n{block('standing', STANDING)}{block('volatile', VOLATILE)}"


def rendered(prompt: Prompt, standing: StandingData, volatile: VolatileData) -> tuple[str, list[str]]:
    """Both parts of a prompt as text, each below a line that names it, and what failed on the way."""
    from agentd.context.prompt import render_standing, render_volatile

    made = {"standing": render_standing(prompt, standing), "volatile": render_volatile(prompt, standing, volatile)}
    failures = [f"{part}: by {by}: {reason}" for part, one in made.items() for by, reason in one.failures]
    return "".join(f"--- {part}, by {one.by}\n{one.text}\n" for part, one in made.items()), failures


def _rendered(found: Settings, context: str) -> tuple[str, list[str]]:
    import asyncio
    import os
    import time

    from agentd.context.prompt import prompt_of_settings
    from agentd.runtime.stored_prompt import prompt_data
    from agentkit.core.contracts.errors import FormatError, StoreError

    try:
        standing, volatile = asyncio.run(prompt_data(found, context, os.environ, lambda: int(time.time() * 1000)))
    except (StoreError, OSError) as error:
        raise StoreFailed(str(error)) from error
    except (LookupError, FormatError) as error:
        raise click.ClickException(str(error)) from error
    return rendered(prompt_of_settings(found), standing, volatile)
