"""The command `replay`: a conversation driven through a stored context."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .faults import EPILOG, Interrupted
from .options import conversation_option, counter_option, file_argument, format_option
from .output import say, store_errors
from .program import one_line
from .reading import Found, counter_of, digest_of, read

if TYPE_CHECKING:
    from agentkit.state.context.tokens import AdditiveCounter


@click.command(epilog=EPILOG, short_help="Drive it through a stored context, turn by turn.")
@file_argument
@format_option
@conversation_option
@counter_option
@click.option(
    "--store", metavar="FILE.db", required=True, help="The SQLite file of the stored contexts; made if missing."
)
@click.option("--run", "run_id", metavar="ID", help="Name of the run in the store.  [default: the file's name]")
@click.option("--resume", is_flag=True, help="Go on behind the last stored turn.")
@click.option("--delay", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS", help="Wait between turns.")
@click.option(
    "--every",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print a line every N turns.  [default: about a dozen lines]",
)
def replay(
    file: str, format_: str | None, conversation: int | str | None, counter: str, store: str,
    run_id: str | None, resume: bool, delay: float, every: int | None,
) -> None:  # fmt: skip
    """Drive a conversation through a stored context, turn by turn, and show size, tokens and cost as it grows.

    A turn is one request and its response, and is stored before the next begins. A replay that was stopped, even by
    kill -9, continues with --resume behind the last stored turn.
    """
    import asyncio

    if file == "-":
        raise click.UsageError("replay needs a file that it can find again, not standard input.")
    chosen = read(file, format_, conversation, must_choose=True)
    name = run_id or os.path.basename(file).partition(".")[0] or "replay"
    is_part = chosen[0].of > 1 and (run_id is None or len(chosen) > 1)
    runs = [(f"{name}-{found.number}" if is_part else name, found) for found in chosen]
    try:
        asyncio.run(_replay_all(file, runs, store, counter_of(counter), resume, delay, every))
    except KeyboardInterrupt:
        raise Interrupted("interrupted; go on behind the last stored turn with --resume") from None


async def _replay_all(
    file: str, runs: Sequence[tuple[str, Found]], store_file: str, counter: AdditiveCounter,
    resume: bool, delay: float, every: int | None,
) -> None:  # fmt: skip
    from agentkit.core.contracts.scope import Scope
    from agentkit.inspect.replay import Origin, ReplayOptions, replay
    from agentkit.inspect.text import ReplayLines
    from agentkit.state.persistence import Checkpointer, StoreCheckpoints
    from agentkit.state.stores.sqlite import SQLiteStore

    scope, digest = Scope(), digest_of(file)
    with store_errors(store_file):
        store = SQLiteStore(store_file)
        try:
            for run_id, found in runs:
                checkpointer = Checkpointer(StoreCheckpoints(store, scope))
                lines = ReplayLines(say, one_line(run_id), one_line(store_file), every)
                origin = Origin(os.path.basename(file), digest, found.number)
                options = ReplayOptions(scope, counter, resume=resume, pause=delay)
                await replay(found.transcript, checkpointer, run_id, origin, options, lines)
        finally:
            await store.aclose()
