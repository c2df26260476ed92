"""`agentd memory`: the agent's memory, read and changed on a store that no daemon holds. Touches the store of the
configuration and, for a value, standard input."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from agentd.cli.configured import Configured, settings
from agentd.cli.starting import StoreFailed

if TYPE_CHECKING:
    from agentd.runtime.memory import MemoryStore

T = TypeVar("T")
FOUND, MISSING = 0, 1


_principal = click.option(
    "--principal",
    metavar="ID",
    help="The memory of this sender, where a2a.scope is principal; default the agent's own.",
)


@click.group(short_help="Read and change the agent's memory; no daemon may be running.")
def command() -> None:
    """Read and change the agent's memory. Answers are JSON.

    The store may not be held by a running daemon, whose agent keeps its memory itself.
    """


@command.command("get", cls=Configured)
@click.argument("key")
@_principal
@click.pass_context
def get(ctx: click.Context, files: tuple[str, ...], key: str, principal: str | None) -> None:
    """Print the value of KEY, and since when it is there. Exit code 1 where there is none."""

    async def read(memory: MemoryStore) -> dict[str, Any]:
        value, expired = await memory.get(key)
        if value is None:
            return {"found": False, "key": key, "expired": expired}
        return {"found": True, "key": key, "value": value.record.value, "meta": value.meta}

    told = _with_memory(ctx, files, principal, read)
    _print(told)
    ctx.exit(FOUND if told["found"] else MISSING)


@command.command("set", cls=Configured)
@click.argument("key")
@click.argument("value")
@click.option("--ttl", metavar="DURATION", help="How long it stays, e.g. 90s, 5m, 2d; default for good.")
@click.option("--if-seq", type=click.IntRange(min=0), help="Only if the key is still at this seq; 0: not there.")
@_principal
@click.pass_context
def set_(
    ctx: click.Context, files: tuple[str, ...], key: str, value: str, ttl: str | None, if_seq: int | None,
    principal: str | None,
) -> None:  # fmt: skip
    """Set KEY to VALUE, which is JSON: a text has quotes. With - it is read from standard input."""
    found = _json(value)
    from agentd.runtime.principals import OPERATOR

    async def write(memory: MemoryStore) -> dict[str, Any]:
        async with memory.writing():
            change = await memory.commit(await memory.set(key, found, ttl=ttl, if_seq=if_seq, by=OPERATOR.id))
        return {"ok": True, "key": key, "meta": change.meta}

    _print(_with_memory(ctx, files, principal, write, make=True))


@command.command("list", cls=Configured)
@click.option("--prefix", default="", help="Only keys that begin with this.")
@click.option("--after", help="Only keys behind this one: the `next` of the page before.")
@click.option("--limit", type=click.IntRange(min=1), help="Keys at most; default memory.list_default_limit.")
@_principal
@click.pass_context
def list_(
    ctx: click.Context, files: tuple[str, ...], prefix: str, after: str | None, limit: int | None,
    principal: str | None,
) -> None:  # fmt: skip
    """List keys, in the order of their bytes, a page at a time."""

    async def read(memory: MemoryStore) -> dict[str, Any]:
        page = await memory.list(prefix=prefix, after=after, limit=limit)
        told = {"keys": list(page.keys), "truncated": page.is_truncated}
        return told if page.next is None else {**told, "next": page.next}

    _print(_with_memory(ctx, files, principal, read))


@command.command("delete", cls=Configured)
@click.argument("key")
@_principal
@click.pass_context
def delete(ctx: click.Context, files: tuple[str, ...], key: str, principal: str | None) -> None:
    """Delete KEY, and say whether there was one."""

    async def write(memory: MemoryStore) -> dict[str, Any]:
        async with memory.writing():
            change = await memory.commit(await memory.delete(key))
        return {"ok": True, "key": key, "found": change.found}

    _print(_with_memory(ctx, files, principal, write))


def _with_memory(
    ctx: click.Context,
    files: tuple[str, ...],
    principal: str | None,
    work: Callable[[MemoryStore], Awaitable[T]],
    *,
    make: bool = False,
) -> T:
    """What `work` makes of the memory of the configured instance, or of `principal` in it. What is refused is said in
    one line. `make`: make a store that is not there."""
    found = settings(ctx, files)
    if (overrides := found.tools.overrides.memory).calls or overrides.preset is not None:
        raise click.ClickException(
            "the memory of this agent is with an MCP server (tools.overrides.memory): look there, or ask the agent"
        )
    if principal is not None and found.a2a.scope != "principal":
        raise click.UsageError("senders have a memory of their own only where a2a.scope is principal.")
    import asyncio

    from agentd.runtime.memories import Memories
    from agentd.runtime.memory import MemoryRefused
    from agentd.runtime.opening import holding
    from agentkit.core.contracts.errors import FormatError, StoreError

    async def run() -> T:
        async with holding(found, make=make) as opened:
            return await work(Memories(opened.records, found, opened.clock).of_owner(principal))

    try:
        return asyncio.run(run())
    except (StoreError, OSError) as error:
        raise StoreFailed(str(error)) from error
    except (MemoryRefused, FormatError) as error:
        raise click.ClickException(str(error)) from error


def _json(text: str) -> Any:
    import json
    import sys

    try:
        return json.loads(sys.stdin.read() if text == "-" else text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"VALUE is JSON ({error}); a text has quotes: '\"like this\"'.") from error


def _print(told: Any) -> None:
    import json

    click.echo(json.dumps(told, ensure_ascii=False, indent=2))
