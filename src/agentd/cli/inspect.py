"""`agentd inspect`: look into what is stored, also while a daemon runs. Reads the store of the configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from agentd.cli.configured import Configured, settings
from agentd.cli.starting import StoreFailed

if TYPE_CHECKING:
    from agentd.runtime.reading import Reader

T = TypeVar("T")
AS_JSON = click.Option(["--json", "as_json"], is_flag=True, help="JSON, for programs.")


class Inspecting(Configured):
    """A command over the store, with `--json`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(AS_JSON)


@click.group(short_help="Look into stored contexts, also beside a running daemon.")
def command() -> None:
    """Look into what is stored: contexts, their logs, what the model is shown of them and was shown before.

    Reads only, also while a daemon runs on the store.
    """


@command.command(cls=Inspecting)
@click.pass_context
def contexts(ctx: click.Context, files: tuple[str, ...], as_json: bool) -> None:
    """List all contexts: size, version, turns, owner."""
    found = _read(ctx, files, lambda reader: reader.contexts())
    from agentd.runtime.reading import Unreadable

    if as_json:
        _print_json([_plain(one) for one in found])
        return
    rows = [("context", "version", "entries", "shown", "tokens", "turns", "owner", "status")]
    for one in found:
        if isinstance(one, Unreadable):
            rows.append((one.id, "-", "-", "-", "-", "-", "-", f"unreadable: {one.reason}"))
            continue
        rows.append(
            (one.id, str(one.version), str(one.entries), str(one.visible), f"{one.est_tokens:,}", str(one.turns),
             one.principal or "-", one.status)
        )  # fmt: skip
    _table(rows)


@command.command(cls=Inspecting)
@click.argument("context")
@click.option("--entries", metavar="A-B", help="Only these entries, e.g. 12-20; default all.")
@click.pass_context
def log(ctx: click.Context, files: tuple[str, ...], context: str, entries: str | None, as_json: bool) -> None:
    """Print the log of a context, folded entries included."""
    first, last = _range(entries)
    found = _read(ctx, files, lambda reader: reader.log(context, first, last))
    import json

    from agentd.context.rows import encode_entry

    for entry in found:
        line = encode_entry(entry).decode()
        if as_json:
            click.echo(line)
            continue
        told = json.loads(line)
        where = f" {entry.turn[-6:]}/{entry.round or 0}" if entry.turn else ""
        click.echo(f"{entry.n:>6}  {entry.kind:<10}{where:<12} {_short(told.get('body'))}")


@command.command(cls=Inspecting)
@click.argument("context")
@click.option("--version", type=click.IntRange(min=1), help="As this version showed it; default the current one.")
@click.pass_context
def view(ctx: click.Context, files: tuple[str, ...], context: str, version: int | None, as_json: bool) -> None:
    """Print what the model is shown of a context, without prompt and tools."""
    shown, messages = _read(ctx, files, lambda reader: reader.view(context, version))
    if as_json:
        _print_json({"version": shown.version, "messages": [message.to_dict() for message in messages]})
        return
    from agentkit.inspect.markup import visible

    click.echo(f"version {shown.version}, {len(messages)} messages")
    for message in messages:
        click.echo(f"\n[{visible(message.role)}]")
        if message.content:
            click.echo(visible(message.content))
        for call in message.tool_calls:
            click.echo(visible(f"-> {call.name}({call.wire_arguments})"))


@command.command(cls=Inspecting)
@click.argument("context")
@click.argument("text")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Entries at most.")
@click.pass_context
def search(ctx: click.Context, files: tuple[str, ...], context: str, text: str, limit: int, as_json: bool) -> None:
    """Find entries of a context that contain every word of TEXT, folded ones included."""
    found = _read(ctx, files, lambda reader: reader.search(context, text, limit))
    if as_json:
        _print_json([{"n": n, "excerpt": excerpt} for n, excerpt in found])
        return
    for n, excerpt in found:
        click.echo(f"{n:>6}  {_short(excerpt)}")


@command.command(cls=Inspecting)
@click.argument("context")
@click.pass_context
def versions(ctx: click.Context, files: tuple[str, ...], context: str, as_json: bool) -> None:
    """List the versions of a context and what made each of them."""
    found = _read(ctx, files, lambda reader: reader.versions(context))
    if as_json:
        _print_json([_plain(one) for one in found])
        return
    rows = [("version", "made by", "last entry", "shown", "covered", "before", "after")]
    for one in found:
        sizes = (f"{one.before:,}", f"{one.after:,}") if one.before else ("-", "-")
        rows.append((str(one.version), one.made_by, str(one.until), str(one.shown), str(one.covered), *sizes))
    _table(rows)


@command.command(cls=Inspecting)
@click.argument("context")
@click.argument("old", type=click.IntRange(min=1))
@click.argument("new", type=click.IntRange(min=1), required=False)
@click.pass_context
def diff(ctx: click.Context, files: tuple[str, ...], context: str, old: int, new: int | None, as_json: bool) -> None:
    """Compare two versions of a context; NEW is the current one unless given."""
    found = _read(ctx, files, lambda reader: reader.diff(context, old, new))
    if as_json:
        _print_json(_plain(found))
        return
    from agentkit.state.compaction.ranges import told

    click.echo(f"added    {told(found.added) or 'nothing'}")
    click.echo(f"removed  {told(found.removed) or 'nothing'}")
    click.echo(f"shortened or shown in full again  {', '.join(map(str, found.remarked)) or 'nothing'}")
    changed = [name for name in ("summary", "pins", "skills", "plan") if getattr(found, name)]
    click.echo(f"changed  {', '.join(changed) or 'nothing else'}")


@command.command(cls=Configured)
@click.argument("context")
@click.option("--version", type=click.IntRange(min=1), help="As this version showed it; default the whole log.")
@click.pass_context
def export(ctx: click.Context, files: tuple[str, ...], context: str, version: int | None) -> None:
    """Write a context as a transcript that `agentkit inspect` reads: its whole log, or what a version showed."""
    text = _read(ctx, files, lambda reader: reader.export(context, version))
    click.echo(text, nl=False)


def _read(ctx: click.Context, files: tuple[str, ...], what: Callable[[Reader], Awaitable[T]]) -> T:
    """What the reader of the configured store finds. What it cannot read is said in one line."""
    found = settings(ctx, files)
    import asyncio

    from agentd.runtime.opening import reading
    from agentkit.core.contracts.errors import FormatError, StoreError

    async def read() -> T:
        async with reading(found) as reader:
            return await what(reader)

    try:
        return asyncio.run(read())
    except (StoreError, OSError) as error:
        raise StoreFailed(str(error)) from error
    except (LookupError, ValueError, FormatError) as error:
        raise click.ClickException(str(error)) from error


def _range(text: str | None) -> tuple[int, int | None]:
    if text is None:
        return 1, None
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise click.UsageError(f"--entries takes a number or a range such as 12-20, not {text!r}")
    return int(first), int(last) if dash else int(first)


def _plain(value: Any) -> Any:
    from dataclasses import asdict

    return asdict(value)


def _print_json(value: Any) -> None:
    import json

    click.echo(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def _short(value: Any, width: int = 100) -> str:
    import json

    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    from agentkit.inspect.markup import visible

    line = visible(" ".join(text.split()))
    return line if len(line) <= width else f"{line[: width - 1]}…"


def _table(rows: Sequence[tuple[str, ...]]) -> None:
    from agentkit.inspect.markup import visible

    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        click.echo(visible(line))
