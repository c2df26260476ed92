"""`agentd chat`: talk to the agent in a terminal, on a store that no daemon holds, or with `--url` over A2A to one that
runs. Touches what the configuration names or the URL leads to, and the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentd.cli.configured import FLAGS, Configured, settings
from agentd.cli.remote import asking, token_option

if TYPE_CHECKING:
    import asyncio

    from agentd.config import Settings
    from agentd.runtime.daemon import Daemon
    from agentd.runtime.waits import Wait

QUIT = ("/quit", "/exit")
HELP = "/context shows its size, /compact folds old messages, /new begins another conversation, /quit ends."


@click.command(cls=Configured, short_help="Talk to the agent in a terminal.")
@click.option("--context", "context", metavar="ID", help="The conversation to go on with; default a new one.")
@click.option("--url", metavar="URL", help="Talk over A2A to the running agent at this address.")
@token_option
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], context: str | None, url: str | None, token_env: str) -> None:
    """Read a message a line, print the answer to each. The conversation is stored like any other: name it with
    --context and it goes on another day. Lines that come from a pipe are answered one after the other.

    The store may not be held by a running daemon: to such a one, talk with --url. It then needs no configuration.
    """
    import asyncio

    if url is not None:
        if files or ctx.meta[FLAGS]:
            raise click.UsageError("With --url the agent has its configuration: leave -c and flags of keys out.", ctx)
        asyncio.run(_chat_with(url, token_env, context or ""))
        return
    found = settings(ctx, files)

    from agentd.cli.logs import log_to_stderr

    log_to_stderr("error" if found.observability.log_level == "info" else found.observability.log_level)
    ctx.exit(asyncio.run(_chat(found, context)))


async def _chat(found: Settings, context: str | None) -> int:
    import sys

    from agentd.cli.starting import started

    async with started(found, people=True) as agent:
        conversation = context or agent.services.ids()
        if sys.stdin.isatty():
            click.echo(f"conversation {conversation}. {HELP}")
        lines = _lines()
        open_ = next((one.task for one in agent.questions() if one.told_in == conversation and one.task), None)
        if open_ is not None and not await _told(agent, open_, conversation, lines):
            return 0
        while (line := await _next(lines)) is not None:
            text = line.strip()
            if text in QUIT:
                break
            if text == "/new":
                conversation = agent.services.ids()
                click.echo(f"conversation {conversation}")
            elif text == "/context":
                click.echo(_size(await agent.command("status", context=conversation)))
            elif text == "/compact":
                click.echo(_reduced(await agent.command("context.compact", context=conversation)))
            elif text.startswith("/"):
                click.echo(f"unknown command {text.split()[0]}; {HELP}")
            elif text:
                sent = await agent.send(text, context=conversation)
                if not await _told(agent, sent.task.id, conversation, lines):
                    break
            if agent.halted is not None:
                return 8
    return 0


async def _told(agent: Daemon, task: str, conversation: str, lines: asyncio.Queue[str | None]) -> bool:
    """Print what a task comes to; what it asks on the way is answered by the next lines. False where they end first:
    the question stays, and whoever goes on with the conversation answers it."""
    from agentd.runtime.waits import Wait
    from agentkit.inspect.markup import visible

    while isinstance(found := await agent.wait_or_ask(task), Wait):
        click.echo(visible(asking(found.question, found.options)))
        if not await _answered(agent, task, found, lines):
            click.echo(f"the question stays: go on with --context {conversation}", err=True)
            return False
    click.echo(visible(found.text if found.output is not None else f"[{found.end_state}: {found.reason}]"))
    return True


async def _answered(agent: Daemon, task: str, asked: Wait, lines: asyncio.Queue[str | None]) -> bool:
    """Answer a question with the first line that is an answer to it, or have it end by itself. False where the lines
    end first."""
    import asyncio

    from agentd.runtime.answers import Unfitting
    from agentd.runtime.waits import NotOpen
    from agentkit.inspect.markup import visible

    closed = asyncio.ensure_future(agent.closed(asked))
    try:
        while True:
            said = asyncio.ensure_future(_next(lines))
            await asyncio.wait({said, closed}, return_when=asyncio.FIRST_COMPLETED)
            if not said.done():
                said.cancel()
                click.echo("[nobody waits for the answer any more]")
                return True
            line = said.result()
            if line is None or line.strip() in QUIT:
                return False
            try:
                await agent.answer(task, line.strip(), question=asked.id)
            except Unfitting as error:
                click.echo(visible(str(error)))
            except NotOpen as error:
                click.echo(f"[{error}]")
                return True
            else:
                return True
    finally:
        closed.cancel()


async def _chat_with(url: str, token_env: str, conversation: str) -> None:
    import sys

    from agentd.cli.remote import Followed, Unreachable, connected, found_now, reporting, said
    from agentkit.inspect.markup import visible

    async with connected(url, token_env) as client:
        if sys.stdin.isatty():
            click.echo(f"{url}. /new begins another conversation, /quit ends.")
        lines, known = _lines(), Followed(context=conversation)
        while (line := await _next(lines)) is not None:
            text = line.strip()
            if text in QUIT:
                break
            if text == "/new":
                known = Followed()
            elif text.startswith("/"):
                click.echo(f"unknown command {text.split()[0]}; /new begins another conversation, /quit ends.")
            elif text:
                before = known
                try:
                    with reporting(url):
                        known = await said(client, text, before)
                except Unreachable as error:
                    if not before.asks:
                        raise
                    click.echo(visible(error.message))  # no answer to the question: it stays, or is over by now
                    with reporting(url):
                        known = await found_now(client, before)
                    if known.question == before.question:
                        continue
                if known.context != before.context:
                    click.echo(f"conversation {visible(known.context)}", err=True)
                click.echo(visible(known.text))


def _lines() -> asyncio.Queue[str | None]:
    """The lines of standard input as they come, None at its end. They are read in a thread that nobody waits for: one
    that waits for a person to type would keep an interrupted process from ending."""
    import asyncio
    import sys
    import threading
    from contextlib import suppress

    loop, lines = asyncio.get_running_loop(), asyncio.Queue[str | None]()

    def read() -> None:
        # By a reader of its own, since the interpreter takes hold of `sys.stdin` when it ends.
        with (
            suppress(RuntimeError),  # the loop is closed: nobody reads on
            open(sys.stdin.fileno(), encoding="utf-8", errors="replace", closefd=False) as source,
        ):
            for line in source:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    return lines


async def _next(lines: asyncio.Queue[str | None]) -> str | None:
    import sys

    if sys.stdin.isatty():
        click.echo("> ", nl=False)
    return await lines.get()


def _size(status: dict[str, object]) -> str:
    return (
        f"{status['est_tokens']:,} of {status['window']:,} tokens, {status['visible']} of {status['entries']} entries "
        f"shown, version {status['version']}, {status['turns']} turns"
    )


def _reduced(told: dict[str, object]) -> str:
    if told.get("declined"):
        return f"not compacted: {told['declined']}"
    return f"now version {told['version']}, {told['est_tokens']:,} tokens; {told['folded']} entries folded"
