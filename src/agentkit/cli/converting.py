"""The command `convert`: a conversation as a request of a provider, or in agentkit's own form."""

from __future__ import annotations

import click

from .faults import EPILOG, Unreadable
from .options import conversation_option, file_argument, format_option
from .output import write
from .program import one_line
from .reading import read

TARGETS = ("anthropic", "openai", "agentkit")


@click.command(epilog=EPILOG, short_help="Write it as a request, or in agentkit's own form.")
@file_argument
@format_option
@conversation_option
@click.option("--to", "target", type=click.Choice(TARGETS), required=True, help="The form to write.")
@click.option(
    "-o", "--output", metavar="OUT", default="-", show_default=True, help='The file to write; "-" is standard output.'
)
def convert(file: str, format_: str | None, conversation: int | str | None, target: str, output: str) -> None:
    """Write a conversation as a request to a provider, repaired by its rules, or in agentkit's own form without loss.

    A file of several conversations needs --conversation; "all" writes one JSON object a line.
    """
    from agentkit.core.contracts.errors import EmptyRequestError
    from agentkit.inspect.convert import converted, repairs

    chosen = read(file, format_, conversation, must_choose=True)
    texts: list[str] = []
    for found in chosen:
        try:
            texts.append(converted(found.transcript, target, a_line=conversation == "all"))
        except EmptyRequestError:
            raise Unreadable(f"{found.name}: nothing to ask a model, no message but system text") from None
        if said := repairs(found.transcript, target):
            click.echo(one_line(f"agentkit: {found.name}: {said}"), err=True)
    write(output, "".join(texts))
