"""`agentd -c FILE`: run an agent until it is drained or idle. Touches everything that the configuration names."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from agentd.cli.configured import FLAGS, Configured, settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from agentd.config import Settings
    from agentd.runtime.daemon import Daemon

DONE, ERROR, UNFINISHED, STORE_FAILED = 0, 1, 3, 8
GRACE = 1.0
"""Seconds in which the answer to a prompt is printed once its turn has ended. One that was never begun has none."""


@click.command(cls=Configured, short_help="Run the agent; what `agentd -c FILE` does.")
@click.option("--prompt", metavar="TEXT", help="One piece of work for the root agent; its answer is printed.")
@click.option("--fresh", is_flag=True, help="Begin anew: adopt nothing of what is stored, and delete nothing.")
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], prompt: str | None, fresh: bool) -> None:
    """Run the agent that the configuration describes, until it is told to stop (SIGTERM, SIGINT) or, for a mere
    prompt, until that is done. SIGHUP reads the configuration again.

    The answer to a prompt goes to standard output, logs go to standard error as JSON lines. A one-shot prompt writes
    nothing unless `store` is configured.
    """
    if prompt is not None:
        ctx.meta[FLAGS].append(("agent.prompt", prompt))
    found = settings(ctx, files)
    import asyncio

    from agentd.cli.logs import log_to_stderr

    log_to_stderr(found.observability.log_level)
    code = asyncio.run(_run(found, lambda: settings(ctx, files), fresh=fresh))
    ctx.exit(code)


async def _run(found: Settings, again: Callable[[], Settings], *, fresh: bool) -> int:
    """One life; its exit code."""
    from agentd.cli.starting import started
    from agentd.runtime import process

    signals = Signals()
    signals.listen()
    async with started(found, fresh=fresh) as agent, _reachable(agent, found):
        process.started()
        return await Life(agent, again, signals).run(found)


@asynccontextmanager
async def _reachable(agent: Daemon, found: Settings) -> AsyncIterator[None]:
    """Over A2A, where `a2a.listen` is set. Its end comes after the drain: until then senders are answered."""
    if found.a2a.listen is None:
        yield
        return
    from agentd.cli.starting import CannotStart
    from agentkit.core.contracts.errors import MissingExtraError

    try:
        from agentd.a2a.server import Server

        server = Server(agent, found.a2a.listen, found.a2a.tls)
    except (MissingExtraError, OSError, ValueError) as error:
        raise CannotStart(str(error)) from error
    async with server.serving():
        yield


class Signals:
    """What the process was told from outside, from before the store is opened on: a start may take its time."""

    def __init__(self) -> None:
        import asyncio

        self.stopping = asyncio.Event()
        self.hurrying = asyncio.Event()
        self.hung_up = asyncio.Event()

    def listen(self) -> None:
        """SIGTERM and SIGINT drain, the second one ends at once; SIGHUP reloads."""
        import asyncio
        import signal

        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self.hung_up.set)

    def _stop(self) -> None:
        if self.stopping.is_set():
            self.hurrying.set()
        self.stopping.set()


class Life:
    """A daemon as a process: its prompt, its reloads, its end."""

    def __init__(self, agent: Daemon, again: Callable[[], Settings], signals: Signals) -> None:
        self.agent, self.again, self.signals = agent, again, signals
        self._waits_for_others = False

    async def _reloads(self) -> None:
        while True:
            await self.signals.hung_up.wait()
            self.signals.hung_up.clear()
            await self.reload()

    async def _hurries(self) -> None:
        await self.signals.hurrying.wait()
        self.agent.hurry()

    async def reload(self) -> None:
        """Read the configuration again. A faulty or refused one changes nothing, and is told."""
        import logging

        from agentd.config import Refused
        from agentkit.core.contracts.errors import StoreError

        try:
            changes = await self.agent.reload(self.again())
        except click.ClickException as error:
            logging.getLogger("agentd").error("not reloaded: %s", error.format_message())
            return
        except (StoreError, OSError, ValueError) as error:
            logging.getLogger("agentd").error("not reloaded as a whole: %s; reload again", error)
            return
        if isinstance(changes, Refused):
            logging.getLogger("agentd").error("%s", changes)

    async def run(self, found: Settings) -> int:
        import asyncio

        prompt = asyncio.create_task(self._prompt(found)) if found.agent.prompt is not None else None
        over = asyncio.create_task(self.agent.until_over())
        stopping = asyncio.create_task(self.signals.stopping.wait())
        listening = [asyncio.create_task(self._reloads()), asyncio.create_task(self._hurries())]
        until = found.lifecycle.run_until
        ends_idle = until == "idle" or (
            until == "auto" and prompt is not None and found.a2a.listen is None and not found.triggers
        )
        idle = asyncio.create_task(self._until_idle(found, prompt)) if ends_idle else None
        waiting = [task for task in (over, stopping, idle) if task is not None]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self.agent.halted is None:
                finished = await self.agent.drain()
            else:
                finished = False
            if self.agent.halted is not None:
                return STORE_FAILED
            if prompt is not None:
                await asyncio.wait({prompt}, timeout=GRACE if finished else 0)
                return prompt.result() if prompt.done() else UNFINISHED
            return DONE if finished else ERROR
        finally:
            for task in [*waiting, *listening, *([prompt] if prompt is not None else [])]:
                task.cancel()

    async def _prompt(self, found: Settings) -> int:
        """Do the one piece of work; print its answer. The exit code that it asks for."""
        from agentd.cli.starting import CannotStart, StoreFailed
        from agentd.context.record import ROOT
        from agentd.runtime.inbox import Busy, Draining
        from agentd.runtime.waits import Wait
        from agentkit.core.contracts.errors import StoreError

        try:
            sent = await self.agent.send(found.agent.prompt or "", context=ROOT)
            while isinstance(task := await self.agent.wait_or_ask(sent.task.id), Wait):
                if not self.agent.can_ask:
                    return self._left(task.question)
                await self.agent.closed(task)
        except StoreError as error:
            raise StoreFailed(str(error)) from error
        except (Busy, Draining) as error:
            click.echo(f"agentd: {error}", err=True)
            return UNFINISHED
        except ValueError as error:
            raise CannotStart(str(error)) from error
        if task.output is not None:
            click.echo(task.text)
        if task.state != "completed":
            click.echo(f"agentd: {task.end_state}: {task.reason}", err=True)
        return task.exit if task.exit is not None else UNFINISHED

    def _left(self, question: str) -> int:
        """Nobody can be asked here, and the question is to wait (`agent.ask_human_fallback`): for another life."""
        from agentkit.inspect.markup import visible

        self._waits_for_others = True
        told = f"agentd: it asks, and waits for the answer in `agentd chat --context root`: {question}"
        click.echo(visible(told), err=True)
        return UNFINISHED

    async def _until_idle(self, found: Settings, prompt: object) -> None:
        """Until nothing has been to do for `lifecycle.idle_grace`; at once when there was a prompt alone."""
        import asyncio

        if isinstance(prompt, asyncio.Task):
            await asyncio.wait({prompt})
            if self._waits_for_others:
                return
        while True:
            await self.agent.until_idle()
            seen = self.agent.events.last
            if prompt is None or found.lifecycle.run_until == "idle":
                await asyncio.sleep(found.lifecycle.idle_grace.total_seconds())
            if self.agent.actors.is_idle and self.agent.events.last == seen:
                return
