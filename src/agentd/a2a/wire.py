"""Between the protocol's messages and the values of the daemon. Touches its arguments only; bytes of files are handed
to whoever stores them."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
from a2a.types.a2a_pb2 import Artifact, Message, Part, Role, TaskState, TaskStatus
from a2a.types.a2a_pb2 import Task as WireTask
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.json_format import ParseError as Unfit

from agentd.context.record import AssistantMsg, Call, DataPart, Entry, FilePart, TextPart, ToolMsg, UserMsg
from agentd.context.record import Part as OwnPart
from agentd.runtime.inbox import Task
from agentd.runtime.waits import Wait
from agentkit.core.contracts.surrogates import replace_surrogates

STATES = {
    "submitted": TaskState.TASK_STATE_SUBMITTED, "working": TaskState.TASK_STATE_WORKING,
    "input-required": TaskState.TASK_STATE_INPUT_REQUIRED, "completed": TaskState.TASK_STATE_COMPLETED,
    "failed": TaskState.TASK_STATE_FAILED, "canceled": TaskState.TASK_STATE_CANCELED,
    "rejected": TaskState.TASK_STATE_REJECTED,
}  # fmt: skip
NAMES = {state: name for name, state in STATES.items()}
QUESTION = "agentd/question"
"""Metadata of a message that answers: which question is meant. Where another one is asked by now it is refused."""


async def parts_of(message: Message, keep: Callable[[bytes], Awaitable[str]]) -> tuple[OwnPart, ...]:
    """The content of a message as it will stand in the log. `keep` stores bytes and gives their SHA-256. InvalidParams
    for a part that says nothing."""
    made: list[OwnPart] = []
    for at, part in enumerate(message.parts):
        kind = part.WhichOneof("content")
        if kind == "text":
            made.append(TextPart(part.text))
        elif kind == "data":
            data = MessageToDict(part.data) if _is_finite(part.data) else None
            if data is None and part.data.WhichOneof("kind") != "null_value":
                raise InvalidParamsError(f"message.parts[{at}].data holds a number that JSON has no form for")
            made.append(DataPart(_whole(data)))
        elif kind in ("raw", "url"):
            name, media_type = part.filename or None, part.media_type or None
            if kind == "url":
                made.append(FilePart(name, media_type, uri=part.url))
            else:
                made.append(FilePart(name, media_type, artifact=await keep(part.raw), size=len(part.raw)))
        else:
            raise InvalidParamsError(f"message.parts[{at}] holds none of text, data, raw, url")
    return tuple(made)


def command_of(message: Message) -> dict[str, Any] | None:
    """The command that a message is: its only part is data with the one key `agentd`."""
    if len(message.parts) != 1 or not message.parts[0].HasField("data"):
        return None
    given = message.parts[0].data
    if given.WhichOneof("kind") != "struct_value" or set(given.struct_value.fields) != {"agentd"}:
        return None
    if not _is_finite(given):
        raise InvalidParamsError("a command holds a number that JSON has no form for")
    found = _whole(MessageToDict(given)["agentd"])
    if not isinstance(found, dict) or not isinstance(found.get("op"), str):
        raise InvalidParamsError('a command is {"agentd": {"op": NAME, ...}}')
    return found


def task_of(
    task: Task,
    state: str,
    history: Iterable[Message] = (),
    *,
    question: Wait | None = None,
    with_artifacts: bool = True,
) -> WireTask:
    """A task as the protocol has it. `state`: as it is now, which the record of a running one does not know;
    `question`: what it waits for."""
    made = WireTask(id=task.id, context_id=task.context, status=status_of(task, state, question), history=history)
    if with_artifacts and (artifact := artifact_of(task)) is not None:
        made.artifacts.append(artifact)
    made.metadata.update(metadata_of(task))
    return made


def status_of(task: Task, state: str, question: Wait | None = None) -> TaskStatus:
    """Where a task stands; of one that did not complete also why, of one that waits for a person what it asks."""
    made = TaskStatus(state=STATES.get(state, TaskState.TASK_STATE_WORKING))
    made.timestamp.FromMilliseconds(task.updated)
    if question is not None and not task.is_settled:
        made.timestamp.FromMilliseconds(question.opened)
        made.message.CopyFrom(message_of(question.id, task, question_parts(question)))
    if task.is_settled and task.state != "completed" and task.reason:
        made.message.CopyFrom(message_of(f"{task.id}.status", task, (TextPart(task.reason),)))
    return made


def question_parts(question: Wait) -> tuple[OwnPart, ...]:
    """What a person is asked, for people and for programs."""
    told: dict[str, Any] = {"kind": question.kind, "tool": question.asked_by, "question": question.question}
    if question.options:
        told["options"] = list(question.options)
    if question.schema is not None:
        told["schema"] = question.schema
    if question.until is not None:
        told["until"] = question.until
    return TextPart(question.question), DataPart({"agentd": {"question": told}})


def artifact_of(task: Task) -> Artifact | None:
    """What a task answered: text, or data."""
    if task.output is None:
        return None
    part = TextPart(task.output) if isinstance(task.output, str) else DataPart(task.output)
    return Artifact(artifact_id=f"{task.id}.result", name="result", parts=[_part(part)])


def metadata_of(task: Task) -> dict[str, Any]:
    """What the runtime adds: how the turn ended, and what it took."""
    if not task.is_settled:
        return {}
    told = {"end_state": task.end_state, "reason": replace_surrogates(task.reason), "usage": dict(task.usage),
            "version": task.version}  # fmt: skip
    return {f"agentd/{key}": value for key, value in told.items() if value not in (None, "", {})}


def history_of(task: Task, entries: Iterable[Entry]) -> list[Message]:
    """What was said in a task's turn, in order: its message, the texts of the answers, and the questions of `ask_human`
    with what was answered. The one that waits for its answer stands in the status."""
    made, questions = [], dict[str, str]()
    for entry in entries:
        body = entry.body
        if entry.turn != task.turn:
            continue
        if isinstance(body, UserMsg):
            made.append(message_of(body.message_id or f"{task.id}.{entry.n}", task, body.parts, Role.ROLE_USER))
        elif isinstance(body, AssistantMsg):
            if body.text:
                made.append(message_of(f"{task.id}.{entry.n}", task, (TextPart(body.text),)))
            questions |= {call.id: str(call.arguments["question"]) for call in body.tool_calls if _is_question(call)}
        elif isinstance(body, ToolMsg) and body.id in questions:
            id = f"{task.id}.{entry.n}"
            made.append(message_of(f"{id}.question", task, (TextPart(questions[body.id]),)))
            if not body.is_error and isinstance(body.content, dict) and "answer" in body.content:
                answer = body.content["answer"]
                part = TextPart(answer) if isinstance(answer, str) else DataPart(answer)
                made.append(message_of(id, task, (part,), Role.ROLE_USER))
    return made


def _is_question(call: Call) -> bool:
    return call.name == "ask_human" and isinstance(call.arguments, dict) and "question" in call.arguments


def meant_by(message: Message) -> str | None:
    """The question that a message answers, where it says so: the id of the message that asked it."""
    if QUESTION not in message.metadata.fields:
        return None
    id: str = message.metadata.fields[QUESTION].string_value
    return id


def message_of(id: str, task: Task, parts: Sequence[OwnPart], role: Role = Role.ROLE_AGENT) -> Message:
    """A message of a task."""
    return Message(
        message_id=replace_surrogates(id), context_id=task.context, task_id=task.id, role=role,
        parts=[_part(part) for part in parts],
    )  # fmt: skip


def answer_of(id: str, context: str, data: Any) -> Message:
    """The answer to a command: a message of its own, and no task."""
    return Message(message_id=id, context_id=context, role=Role.ROLE_AGENT, parts=[_part(DataPart(data))])


def _part(part: OwnPart) -> Part:
    if isinstance(part, TextPart):
        return Part(text=replace_surrogates(part.text), media_type="text/plain")
    if isinstance(part, FilePart):
        where = part.uri or f"artifact:{part.artifact}"
        return Part(url=where, filename=part.name or "", media_type=part.media_type or "")
    data = msgspec.json.decode(bytes(part)) if isinstance(part, msgspec.Raw) else part.data
    made = Part(media_type="application/json")
    try:
        ParseDict(data, made.data)
    except (Unfit, ValueError, TypeError):  # deeper than the protocol allows, or half a surrogate pair
        return Part(text=replace_surrogates(json.dumps(data, ensure_ascii=False, default=str)), media_type="text/plain")
    return made


def _is_finite(value: Any) -> bool:
    """Whether every number of a protobuf Value is one that JSON has; a Value without any kind is none at all."""
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        return math.isfinite(value.number_value)
    if kind == "struct_value":
        return all(_is_finite(one) for one in value.struct_value.fields.values())
    if kind == "list_value":
        return all(_is_finite(one) for one in value.list_value.values)
    return kind is not None


def _whole(value: Any) -> Any:
    """Numbers without a fraction as whole ones: protobuf knows floating point alone."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(one) for key, one in value.items()}
    return [_whole(one) for one in value] if isinstance(value, list) else value
