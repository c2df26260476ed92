"""tau-bench results: a list of runs, each with an OpenAI-shaped trajectory. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .conversation import Conversation
from .openai_shape import read_message
from .parts import as_id
from .report import Reporter
from .source import Source
from .transcript import Transcript

NAME = "tau-bench"


def recognises(value: Any) -> bool:
    """Whether a document, or one record of it, is of this format."""
    if isinstance(value, list):
        return any(isinstance(entry, Mapping) and isinstance(entry.get("traj"), list) for entry in value)
    return isinstance(value, Mapping) and isinstance(value.get("traj"), list)


def read(source: Source) -> tuple[Transcript, ...]:
    """A conversation for each run."""
    transcripts: list[Transcript] = []
    for number, run in source.records():
        report = Reporter() if transcripts else source.report
        transcripts.append(_read_run(run, number, source.place(number), report))
    return tuple(transcripts)


def _read_run(run: Any, number: int, place: str, report: Reporter) -> Transcript:
    conversation = Conversation(NAME, report)
    about = {k: v for k, v in run.items() if k != "traj"} if isinstance(run, Mapping) else {"record": run}
    steps = run.get("traj") if isinstance(run, Mapping) else None
    if not isinstance(steps, list):
        report.note("unknown record", place, "kept in meta", "a run without a trajectory")
        steps = []
    for at, entry in enumerate(steps, 1):
        where = f"{place}, message {at}"
        message = read_message(entry, report, where)
        if message.role == "tool" and message.content.startswith("Error"):
            message = replace(message, is_error=True)
        index = conversation.add(message, where)
        if message.role == "assistant":
            conversation.respond(index, place=where)
    task, trial = about.get("task_id"), about.get("trial")
    id = f"task-{as_id(task)}-trial-{as_id(trial)}" if task is not None else f"run-{number}"
    return conversation.finish(id=id, meta=about)
