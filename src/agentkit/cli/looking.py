"""The commands that look into transcripts and change nothing: inspect, count, check."""

from __future__ import annotations

import click

from agentkit import __version__

from .faults import EPILOG, FINDINGS
from .options import conversation_option, counter_option, files_argument, format_option
from .output import style_of_terminal, write
from .program import one_line
from .reading import Inputs, counter_of

RULES = ("strict", "anthropic", "openai-chat", "openai-responses", "gemini")


@click.command(epilog=EPILOG, short_help="Where the tokens and the money went.")
@files_argument
@format_option
@conversation_option
@counter_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs; docs/cli.md describes it.")
@click.option("--html", "page", metavar="FILE", help="Write a self-contained HTML report with plots.")
@click.option(
    "--cache", "cache_only", is_flag=True, help="Only the prompt cache: each request, what broke it, what it cost."
)
def inspect(
    files: tuple[str, ...],
    format_: str | None,
    conversation: int | str | None,
    counter: str,
    as_json: bool,
    page: str | None,
    cache_only: bool,
) -> None:
    """Say where the tokens, the money and the cache reads of a conversation went.

    Several conversations are listed with a line each; --conversation shows one of them whole, or "all".
    """
    from agentkit.inspect import inspect_transcript

    counting = counter_of(counter)
    inputs = Inputs(files, format_, conversation)
    inspections = [
        inspect_transcript(found.transcript, source=found.file, number=found.number, of=found.of, counter=counting)
        for _, several in inputs
        for found in several
    ]
    if not inspections:
        inputs.finish()
    if page is not None:
        from agentkit.inspect.page import render_page

        write(page, render_page(inspections, version=__version__))
    if as_json:
        from agentkit.inspect.shape import json_document, to_shape

        write("-", json_document(to_shape(inspections)))
    elif page is None:
        from agentkit.inspect.text import render_cache, render_text

        whole = True if conversation is not None else None
        style = style_of_terminal()
        text = render_cache(inspections, style) if cache_only else render_text(inspections, style, whole=whole)
        click.echo(text, nl=False, color=True)
    elif page != "-":
        click.echo(f"wrote {one_line(page)}")
    inputs.finish()


@click.command(epilog=EPILOG, short_help="Tokens of each file.")
@files_argument
@format_option
@conversation_option
@counter_option
def count(files: tuple[str, ...], format_: str | None, conversation: int | str | None, counter: str) -> None:
    """Count tokens: a line for each FILE with tokens, messages and name, and the total of several.

    All messages and tool schemas of a file count, as `inspect` counts them.
    """
    from agentkit.inspect.measure import count_transcript

    counting = counter_of(counter)
    lines: list[tuple[int, int, str]] = []
    inputs = Inputs(files, format_, conversation)
    for file, several in inputs:
        transcripts = [found.transcript for found in several]
        tokens = sum(count_transcript(transcript, counting) for transcript in transcripts)
        lines.append((tokens, sum(len(transcript.history) for transcript in transcripts), file))
    if len(lines) > 1:
        lines.append((sum(line[0] for line in lines), sum(line[1] for line in lines), "total"))
    width = max((len(str(line[0])) for line in lines), default=0)
    message_width = max((len(str(line[1])) for line in lines), default=0)
    for tokens, messages, name in lines:
        click.echo(f"{tokens:>{width}} {messages:>{message_width}} {one_line(name)}")
    inputs.finish()


@click.command(epilog=EPILOG, short_help="Whether a provider would accept it.")
@files_argument
@format_option
@conversation_option
@click.option(
    "--rules",
    type=click.Choice(RULES),
    default="strict",
    show_default=True,
    help="Whose rules; strict is what every provider accepts.",
)
def check(files: tuple[str, ...], format_: str | None, conversation: int | str | None, rules: str) -> None:
    """Check what the agent would send next against the rules of a provider.

    One line for each problem, and exit code 1 if there is any. Adapters repair all of them before they send.
    """
    from agentkit.core.contracts import validity
    from agentkit.inspect.measure import problems

    rule_set = getattr(validity, rules.upper().replace("-", "_"))
    any_found = False
    inputs = Inputs(files, format_, conversation)
    for _, several in inputs:
        for found in several:
            listed = problems(found.transcript, rule_set)
            any_found = any_found or bool(listed)
            for problem, where in listed:
                call = f" (call {problem.call_id})" if problem.call_id else ""
                click.echo(one_line(f"{found.name}: {where}: {problem.code}: {problem.detail}{call}"))
            if not listed:
                click.echo(f"{one_line(found.name)}: valid by the {rules} rules")
    inputs.finish()
    if any_found:
        raise click.exceptions.Exit(FINDINGS)
