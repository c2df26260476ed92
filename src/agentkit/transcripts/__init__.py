"""Recorded conversations of other agents, read into this library's values, and written as requests of providers.

Everything in a recorded file is content: nothing in it is followed, run or fetched.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from .export import to_anthropic, to_openai
from .formats import FORMATS, Format, named, recognise
from .lines import Progress
from .native import dumps
from .report import Finding, Report, Reporter
from .source import Source, in_memory, open_file
from .transcript import CallLink, Compaction, Response, Transcript

__all__ = [
    "FORMATS",
    "CallLink",
    "Compaction",
    "Finding",
    "Progress",
    "Report",
    "Response",
    "Transcript",
    "detect",
    "dumps",
    "load",
    "loads",
    "to_anthropic",
    "to_openai",
]


def load(
    path: str | os.PathLike[str], *, format: str | None = None, progress: Progress | None = None
) -> tuple[Transcript, ...]:
    """The conversations in a file: several runs, or a main conversation and its sub-agents.

    `format`: a key of FORMATS, in place of recognising it. `progress(bytes read, bytes in all)` is called as reading
    goes on. FormatError, naming file and reason, for what cannot be opened, is no transcript, or is in no known format;
    what is wrong inside a readable file is in the `report` of its conversations.
    """
    stream, total = open_file(path)
    with stream:
        return _read(Source(os.fspath(path), stream, total, Reporter(), progress), format)


def loads(
    data: bytes | str, *, format: str | None = None, name: str = "<data>", progress: Progress | None = None
) -> tuple[Transcript, ...]:
    """The conversations in data that is in memory; `name` is how messages call it. Else like `load`."""
    stream, total = in_memory(data)
    return _read(Source(name, stream, total, Reporter(), progress), format)


def detect(path: str | os.PathLike[str]) -> str:
    """The name of the format that a file is in: a key of FORMATS. FormatError as from `load`."""
    stream, total = open_file(path)
    with stream:
        return recognise(Source(os.fspath(path), stream, total, Reporter())).name


def _read(source: Source, format: str | None) -> tuple[Transcript, ...]:
    found: Format = recognise(source) if format is None else named(format)
    assert found.read is not None  # both refuse formats that are not read
    with _cycle_collector_at_rest():
        return found.read(source)


@contextmanager
def _cycle_collector_at_rest() -> Iterator[None]:
    """An import makes many objects that stay, and no cycles: looking at all of them again and again would take a
    quarter of the time. Garbage of other threads waits until the file is read."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
