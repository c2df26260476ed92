"""Arguments and options that several commands share."""

from __future__ import annotations

import click

COUNTERS = ("approx", "char-class", "tiktoken")


def _conversation_number(ctx: click.Context, option: click.Parameter, value: str | None) -> int | str | None:
    if value is None or value == "all":
        return value
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise click.BadParameter(f'{value!r} is neither a number from 1 on nor "all".')
    return int(value)


files_argument = click.argument("files", nargs=-1, required=True, metavar="FILE...")
file_argument = click.argument("file", metavar="FILE")
format_option = click.option(
    "--format", "format_", metavar="NAME", help="Read FILE as this format instead of telling it by its contents."
)
conversation_option = click.option(
    "--conversation", metavar="N", callback=_conversation_number, help='The Nth conversation of a file, or "all".'
)
counter_option = click.option(
    "--counter",
    type=click.Choice(COUNTERS),
    default="char-class",
    show_default=True,
    help="How tokens are counted; tiktoken needs the extra [fast].",
)
