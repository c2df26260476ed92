"""`agentd check`: is the configuration sound, and with `--store` what is stored? Touches the files that are named, the
environment and, for reading, the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentd.cli.configured import Configured, settings, warnings
from agentd.cli.starting import StoreFailed

if TYPE_CHECKING:
    from agentd.config import Settings
    from agentd.records.survey import Survey

SOUND, UNSOUND = 0, 1


@click.command(cls=Configured, short_help="Check the configuration, or what is stored; nothing is started.")
@click.option("--store", "store", is_flag=True, help="Read everything that is stored, also beside a running daemon.")
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], store: bool, as_json: bool) -> None:
    """Read the configuration as a start would and say everything that is wrong with it, one line a fault, with its
    file and line and its key. Nothing is started, opened or written; secrets are looked up, and shown nowhere.

    With --store, look at the store too: who has it, what is in it, and every row and log line that cannot be read.
    Exit code 1 if there is one, 8 if the store cannot be opened.
    """
    found = settings(ctx, files)
    for warning in warnings(found):
        click.echo(f"agentd: {warning}", err=True)
    from agentd.config import digest

    told = {"agent": found.agent.name, "store_kind": found.store_kind, "digest": digest(found)}
    if not as_json:
        click.echo(
            f"configuration of {told['agent']} is sound: store {told['store_kind']}, digest {told['digest'][:12]}"
        )
    surveyed = _surveyed(found) if store else None
    if as_json:
        _print_json(told if surveyed is None else {**told, "store": plain(surveyed)})
    elif surveyed is not None:
        click.echo(report(surveyed), nl=False)
    ctx.exit(SOUND if surveyed is None or surveyed.is_sound else UNSOUND)


def _surveyed(found: Settings) -> Survey:
    import asyncio
    import os

    from agentd.runtime.store_check import check_store
    from agentkit.core.contracts.errors import StoreError

    try:
        return asyncio.run(check_store(found, os.environ))
    except (StoreError, OSError) as error:
        raise StoreFailed(str(error)) from error


def plain(found: Survey) -> dict[str, Any]:
    """A survey as plain JSON."""
    from dataclasses import asdict

    told = asdict(found)
    told["is_sound"] = found.is_sound
    told["unreadable"] = [{**one.name._asdict(), "entry": one.entry, "reason": one.reason} for one in found.unreadable]
    if found.file is not None:
        told["file"]["path"] = str(found.file.path)
    told["held_by"] = None if found.held_by is None else {"owner": found.held_by[0], "until": found.held_by[1]}
    return told


def report(found: Survey) -> str:
    """A survey as text, a line for each thing."""
    lines = [f"store       {found.store}"]
    if found.file is not None:
        file = found.file
        bug = "; it can damage a file that two connections write, so one alone does" if file.has_wal_bug else ""
        lines += [
            f"file        {file.path}, {file.size:,} bytes, SQLite {file.sqlite}{bug}",
            f"integrity   {'ok' if not file.faults else f'{len(file.faults)} faults'}",
            *(f"            {fault}" for fault in file.faults),
            f"held by     {file.locked_by or 'nobody'}",
        ]
    elif found.held_by is not None:
        lines.append(f"last held   {found.held_by[0]}")
    begun = "never started" if found.generation is None else f"{found.generation}, started {_times(found.starts)}"
    lines.append(f"generation  {begun}")
    for generation, counts in (found.counts or {}).items():
        held = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
        lines.append(f"records     {held} ({f'generation {generation}' if generation else 'above all generations'})")
    if found.counts is None:
        lines.append("records     not counted: this store cannot list")
    if found.size:
        lines.append(f"bytes       {', '.join(f'{size:,} {kind}' for kind, size in found.size.items())}")
    if found.tombstones:
        lines.append(f"tombstones  {found.tombstones:,}")
    if found.indexed is not None:
        lines.append(f"memory      list of keys made anew: {found.indexed:,}")
    lines.append(f"log lines   {found.lines:,}")
    if found.cut_short is not None:
        lines.append(f"cut short   {found.cut_short}")
    lines.append(f"unreadable  {len(found.unreadable) or 'nothing'}")
    for one in found.unreadable:
        name = one.name
        where = f"entry {one.entry} of {name.kind}" if one.entry is not None else name.kind
        lines.append(f"  {where} {name.id!r}, generation {name.generation}, {name.scope}: {one.reason}")
    return "".join(f"{line}\n" for line in lines)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _print_json(value: Any) -> None:
    import json

    click.echo(json.dumps(value, ensure_ascii=False, indent=2))
