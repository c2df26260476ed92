"""The conversations that benchmarks replay: recorded sessions as tasks, answers, calls and results, in plain values
that any library can be driven with. Reads the sessions.

Texts, calls and results are kept; thinking and pictures are not, since libraries differ in what they make of them. A
text of the user that came along with results goes into the last of these. What no session recorded is put in the same
way for everybody: a system text of the usual size, a closing text that changes with every request, two compactions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from agentkit.core.contracts.frozen import thaw
from agentkit.core.contracts.types import Message, ToolCall
from agentkit.core.contracts.validity import repair
from agentkit.transcripts import Transcript, load

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "tests" / "data" / "transcripts"
STANDING = ROOT / "CONTRIBUTING.md"
"""The system text where a session has recorded none, or a short one: rules of a project, as an agent is given them."""
USUAL = 4_096
"""Characters from which on a recorded system text stands alone."""
LEAST = 12
"""Requests that a conversation has. A shorter one is told again until it has as many: two compactions need room."""
SECONDS = 20.0
"""From one request to the next."""
EXCERPT, SUMMARY = 160, 2_000
"""Characters of a summary for each message, and in all."""


@dataclass(frozen=True)
class Call:
    """A call of the model, and what came of it."""

    id: str
    name: str
    arguments: dict[str, Any]
    result: str


@dataclass(frozen=True)
class Step:
    """A request and its answer. `task`: what the user said in front of it, None where it answers results; `closing`:
    plan, memory and time at this request; `summary`: stands for everything but the last turn from here on, if any."""

    task: str | None
    text: str
    calls: tuple[Call, ...] = ()
    closing: str = ""
    summary: str | None = None

    @property
    def answer(self) -> dict[str, Any]:
        """As a fake provider takes it."""
        calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in self.calls]
        return {"text": self.text, "calls": calls}


@dataclass(frozen=True)
class Conversation:
    """A session to replay. `tools`: name, description, parameters (JSON Schema) of each."""

    name: str
    system: str
    tools: tuple[dict[str, Any], ...]
    steps: tuple[Step, ...] = field(repr=False)

    def plain(self) -> dict[str, Any]:
        """The same in values that JSON can hold."""
        return asdict(self)

    @property
    def results(self) -> list[str]:
        """What the calls came to, in order."""
        return [call.result for step in self.steps for call in step.calls]


def conversations(folder: Path = SAMPLES) -> list[Conversation]:
    """All sessions below a folder, in order of their names. FileNotFoundError where there are none."""
    found = []
    for path in sorted(folder.glob("*/*")):
        if path.suffix in (".json", ".jsonl", ".traj"):
            transcripts = load(path)
            for number, transcript in enumerate(transcripts, 1):
                name = f"{path.parent.name}/{path.name}" + (f" {number}" if len(transcripts) > 1 else "")
                found.append(conversation(transcript, name))
    if not found:
        raise FileNotFoundError(f"no recorded sessions below {folder}")
    return found


def conversation(transcript: Transcript, name: str) -> Conversation:
    """One session, told again until it has LEAST requests."""
    standing = [message.content for message in transcript.history if message.role in ("system", "developer")]
    system = "\n\n".join(standing)
    if len(system) < USUAL:
        system = "\n\n".join([STANDING.read_text(encoding="utf-8"), *standing])
    once = list(_steps(transcript.history))
    steps = [step for _ in range(-(-LEAST // len(once))) for step in once]
    numbered = iter(range(1, sum(len(step.calls) for step in steps) + 1))
    steps = [
        replace(step, calls=tuple(replace(call, id=f"call_{next(numbered):05}") for call in step.calls))
        for step in steps
    ]
    return Conversation(name, system, tuple(_tools(transcript, steps)), tuple(_dressed(steps)))


def _steps(history: Sequence[Message]) -> Iterator[Step]:
    """Requests and answers of a transcript, each call with its result."""
    said: list[str] = []
    task: str | None = None
    texts: list[str] = []
    calls: list[ToolCall] = []
    results: list[str] = []
    for message in repair([m for m in history if m.role not in ("system", "developer")]).messages:
        if message.role == "tool":
            results.append(message.content)
        elif message.role == "user" and results:
            results[-1] += f"\n\n{message.content}"
        elif message.role == "user":
            said.append(message.content)
        else:
            if texts and (said or results):
                yield _step(task, texts, calls, results)
                task, texts, calls, results = None, [], [], []
            if not texts:
                task, said = "\n\n".join(said) or None, []
            texts.append(message.content)
            calls.extend(message.tool_calls)
    yield _step(task, texts, calls, results)
    if results:
        yield Step(None, "Done.")


def _step(task: str | None, texts: list[str], calls: list[ToolCall], results: list[str]) -> Step:
    made = tuple(
        Call(call.id, re.sub(r"[^a-zA-Z0-9_-]", "_", call.name)[:64], thaw(dict(call.arguments)), result or "(nothing)")
        for call, result in zip(calls, results, strict=False)
    )
    return Step(task, "\n".join(filter(None, map(str.strip, texts))) or ("" if made else "Done."), made)


def _tools(transcript: Transcript, steps: Sequence[Step]) -> Iterator[dict[str, Any]]:
    """The tools that were offered, and those that were called without a record of the offer."""
    known = {tool.name: tool for tool in transcript.tools}
    for name in sorted({*known, *[call.name for step in steps for call in step.calls]}):
        tool = known.get(name)
        schema: dict[str, Any] = {} if tool is None else thaw(tool.parameters)
        schema = {"type": "object", "properties": {}, **schema}
        yield {"name": name, "description": "" if tool is None else tool.description, "parameters": schema}


def _dressed(steps: list[Step]) -> Iterator[Step]:
    """The steps with what changes from request to request, and two compactions."""
    folded: list[str] = []
    after_calls = False
    for number, step in enumerate(steps):
        # Where a run begins there has to be something to begin with.
        task = step.task if step.task or after_calls else "Go on."
        summary = None
        if number in (len(steps) // 3, 2 * len(steps) // 3):
            summary = f"Summary of {number} exchanges so far:\n" + "\n".join(folded)[-SUMMARY:]
        yield replace(step, task=task, closing=closing(number, len(steps)), summary=summary)
        folded += [f"- {text[:EXCERPT]}" for text in (step.task, step.text) if text]
        after_calls = bool(step.calls)


def closing(number: int, of: int) -> str:
    """Plan, memory and clock at a request: something of it changes each time."""
    now = datetime(2026, 11, 30, 9) + timedelta(seconds=SECONDS * number)
    parts = ("understand the task", "look at what is there", "make the change", "check it", "report")
    done = number * len(parts) // of
    plan = "\n".join(f"[{'x' if at < done else '>' if at == done else ' '}] {part}" for at, part in enumerate(parts))
    keys = ", ".join(f"note-{at}" for at in range(1, number // 3 + 2))
    return f"Plan (step {number + 1}):\n{plan}\nMemory keys: {keys}\nNow: {now:%Y-%m-%d %H:%M:%S}Z"
