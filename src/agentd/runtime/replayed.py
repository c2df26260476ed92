"""The tools of a recording as tools of the daemon: a call gets the result that it had. Touches only its arguments."""

from __future__ import annotations

from agentd.config.rules import RECORDING
from agentkit.core.contracts.blocks import TextBlock
from agentkit.core.contracts.frozen import thaw
from agentkit.core.contracts.messages import Message, ToolCall
from agentkit.models.adapters.replay import RecordedTools

from .tools.base import Answer, Invocation, Tool, ToolError

SERVER = RECORDING
"""What the box of tools calls them: `box.set_server(SERVER, replayed_tools(models.recorded))`. One that is called like
a tool of the daemon is offered as `replay.<name>`."""


def replayed_tools(recorded: RecordedTools) -> list[Tool]:
    """A tool for each that the recording calls. Running one again changes nothing, so a call that a crash cut off is
    run again rather than shown as unknown."""
    return [
        Tool(
            schema.name, schema.description, thaw(schema.parameters), _Replayed(recorded, schema.name), idempotent=True
        )
        for schema in recorded.schemas
    ]


class _Replayed:
    def __init__(self, recorded: RecordedTools, name: str) -> None:
        self._recorded, self._name = recorded, name

    async def __call__(self, asked: Invocation) -> Answer:
        try:
            result = self._recorded.result(ToolCall(asked.call, self._name, asked.arguments))
        except LookupError as error:
            raise ToolError(str(error)) from error
        return Answer(_content(result), result.is_error)


def _content(result: Message) -> str:
    """The text of a result; of its pictures and files, which a record would hold as artifacts, their number."""
    others = sum(not isinstance(item, TextBlock) for item in result.ordered)
    return result.content if not others else f"{result.content}\n[{others} pictures or files, not replayed]".lstrip()
