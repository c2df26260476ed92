"""A result that comes after its call was answered otherwise. Touches only its arguments."""

from __future__ import annotations

from typing import Any

from agentkit.core.contracts.messages import Message, ToolCall, mark, marked
from agentkit.state.context import WorkingContext

from .tools import ToolResult, as_result


def deliver_result(context: WorkingContext, call_id: str, content: Any, *, is_error: bool = False) -> Message:
    """Append the result of the latest call with that id, and return its message.

    Where the model was sent the call with an interim result or a stand-in, the result is marked `late`: it is told
    where it stands, and what was sent, and is cached, stays. Otherwise it takes its place behind its call.
    LookupError where there is no such call, ValueError where it has its result already.
    """
    at, call = _latest(context, call_id)
    behind = context.messages[at + 1 :]
    for message in behind:
        if message.role == "tool" and message.tool_call_id == call_id and not _is_interim(message):
            raise ValueError(f"the call {call_id!r} of {call.name} has its result already")
    given = content if isinstance(content, ToolResult) else ToolResult(content, is_error=is_error)
    made = as_result(call, given)
    if at < _sent(context) or any(message.role == "assistant" for message in behind):
        made = mark(made, "late")
    context.append(made)
    return made


def _latest(context: WorkingContext, call_id: str) -> tuple[int, ToolCall]:
    for at in range(len(context.messages) - 1, -1, -1):
        for call in context.messages[at].tool_calls:
            if call.id == call_id:
                return at, call
    raise LookupError(f"no call in this context has the id {call_id!r}")


def _is_interim(message: Message) -> bool:
    return marked(message, "pending") is not None or marked(message, "synthetic") is not None


def _sent(context: WorkingContext) -> int:
    """How many messages of the tail the last request had."""
    layout = context.sent
    return 0 if layout is None else sum(len(layout.segment(kind).messages) for kind in ("summary", "tail"))
