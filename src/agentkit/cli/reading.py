"""Reading the files that a command is given: each conversation with its place, or one line that says what is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .faults import UNREADABLE, Unreadable

if TYPE_CHECKING:
    from agentkit.state.context.tokens import AdditiveCounter
    from agentkit.transcripts import Transcript

LONG_WORK = 0.7
"""Seconds after which reading shows how far it is; most files are read before."""


class Found(NamedTuple):
    """A conversation and its place: the file as messages call it, and the number among those of the file, from 1."""

    file: str
    number: int
    of: int
    transcript: Transcript

    @property
    def name(self) -> str:
        """How messages call it."""
        return self.file + (f" conversation {self.number}" if self.of > 1 else "")


class Inputs:
    """Several files one after another; one that cannot be read is told of and passed over, and ends the command with
    the exit code for it once the others are done."""

    def __init__(self, files: Sequence[str], format_: str | None, conversation: int | str | None) -> None:
        self._files, self._format, self._conversation = files, format_, conversation
        self._unreadable = False

    def __iter__(self) -> Iterator[tuple[str, list[Found]]]:
        """Each readable file as messages call it, and its wanted conversations."""
        for file in self._files:
            try:
                found = read(file, self._format, self._conversation)
            except Unreadable as error:
                self._unreadable = True
                error.show()
            else:
                yield shown(file), found

    def finish(self) -> None:
        """Ends the command when a file could not be read."""
        if self._unreadable:
            raise click.exceptions.Exit(UNREADABLE)


def read(file: str, format_: str | None, conversation: int | str | None, *, must_choose: bool = False) -> list[Found]:
    """The wanted conversations of a file. `must_choose`: one of several has to be named, or all of them."""
    name, transcripts = shown(file), _load(file, format_)
    found = [Found(name, number, len(transcripts), one) for number, one in enumerate(transcripts, 1)]
    if isinstance(conversation, int):
        if conversation > len(found):
            raise click.UsageError(f"{name} holds {len(found)} conversation(s), there is no number {conversation}.")
        return [found[conversation - 1]]
    if must_choose and conversation is None and len(found) > 1:
        raise click.UsageError(f'{name} holds {len(found)} conversations; choose one with --conversation, or "all".')
    return found


def _load(file: str, format_: str | None) -> tuple[Transcript, ...]:
    """The conversations of a file, or Unreadable, which names it."""
    from agentkit.core.contracts.errors import FormatError
    from agentkit.transcripts import FORMATS, load, loads

    if format_ is not None and format_ not in FORMATS:
        raise click.BadParameter(f"{format_!r} is none of {', '.join(FORMATS)}.", param_hint="'--format'")
    try:
        if file == "-":
            return loads(sys.stdin.buffer.read(), format=format_, name=shown(file))
        with _load_progress(file) as progress:
            return load(file, format=format_, progress=progress)
    except FormatError as error:
        raise Unreadable(str(error)) from None
    except OSError as error:
        raise Unreadable(f"{shown(file)}: {error.strerror or error}") from None


@contextmanager
def _load_progress(file: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal, once reading has taken a while."""
    if not sys.stderr.isatty():
        yield None
        return
    from time import monotonic

    began = monotonic()
    bar: Any = None
    seen = 0

    def progress(read: int, total: int) -> None:
        nonlocal bar, seen
        if bar is None and total and monotonic() - began > LONG_WORK:
            bar = click.progressbar(length=total, label=f"reading {os.path.basename(file)}", file=sys.stderr)
            bar.__enter__()
        if bar is not None:
            bar.update(read - seen)
            seen = read

    try:
        yield progress
    finally:
        if bar is not None:
            bar.__exit__(None, None, None)


def counter_of(name: str) -> AdditiveCounter:
    """The counter that `--counter` names."""
    from agentkit.state.context import ApproxTokenCounter, CharClassTokenCounter, TiktokenCounter

    if name == "tiktoken":
        counter = TiktokenCounter("o200k_base")
        if not counter.exact:
            click.echo(
                "agentkit: tiktoken or its vocabulary file is not installed, so characters / 4 are counted; "
                "pip install 'arc-agentkit[fast]' and set TIKTOKEN_CACHE_DIR",
                err=True,
            )
        return counter
    return ApproxTokenCounter() if name == "approx" else CharClassTokenCounter()


def digest_of(file: str) -> str:
    """SHA-256 of a file, or Unreadable."""
    import hashlib

    try:
        with open(file, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise Unreadable(f"{shown(file)}: {error.strerror or error}") from None


def shown(file: str) -> str:
    """How messages call a file."""
    return "standard input" if file == "-" else file
