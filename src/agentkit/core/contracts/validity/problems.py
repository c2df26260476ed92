"""What can be wrong with a transcript, and the fixed texts that stand in for what is missing.

Touches only its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Problem:
    """One thing that a provider would refuse, and thus one repair.

    `index`: the message in the input; `call_id`: the id as the input has it, where a call or result is concerned;
    `detail` holds lengths and ids, never content.
    """

    code: str
    index: int
    call_id: str | None
    detail: str


CODES = MappingProxyType(
    {
        "orphan": "a result without any such call before it",
        "moved": "text between a call and its result",
        "unanswered": "a call without a result",
        "late": "a result in a later turn than its call",
        "duplicate": "another result for an answered call",
        "id": "a call id that is empty, repeated, ill-formed or too long; a result without one",
        "same-role": "neighbours of one role",
        "first": "the conversation does not begin with a user message",
        "late-system": "system or developer text after the start",
        "role": "an unknown role",
        "blank": "a text block of blanks, or a picture or file of no bytes",
        "empty": "a message with nothing to send",
        "native-result": "tool results as blocks of another message",
        "calls-on": "calls on a message that is not the assistant's",
        "name": "a name that the provider does not take",
        "surrogate": "text that is no valid UTF-8",
        "arguments": "arguments that are no JSON object",
        "thinking": "thinking that the provider would refuse",
        "reasoning": "a reasoning item without what it led to",
        "server-call": "a call or result of the provider's own tools without its other half",
        "media": "a picture or file where the provider takes text only",
        "foreign": "a block of another provider",
        "marks": "prompt-cache marks inside the content",
    }
)
"""Every code, with what was found."""

STAND_IN = "[no result: this call was interrupted or its result was not recorded]"
"""The result of a call that has none. It says neither that the tool ran nor that it did not, since nobody knows."""

NO_OUTPUT = "[no output]"
"""The text of a result without any: providers refuse empty text, and silence must not read as a failure."""

FIRST = "[The conversation shown here begins with the assistant's message.]"
"""The user message in front of a conversation that begins with the assistant. No request, or it would be answered."""

MEDIA_MOVED = "[no text: the files of this result follow]"
"""The text of a result whose pictures or files were moved: `[no output]` would be wrong there."""

UNNAMED_TOOL = "unnamed_tool"
"""The name of a call that names no tool; fits every provider's pattern."""


def media_of_result(call_id: str) -> str:
    """What stands in front of pictures or files moved out of a result: else they would pass for the user's own."""
    return f"[files of the result of tool call {call_id}]"


MEDIA_OF_REPLY = "[files of the assistant's message]"
"""The same for those of an assistant message."""

MEDIA_OF_SYSTEM = "[files of the system text]"
"""The same for those of a system message."""
