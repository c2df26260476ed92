"""`Transcript`: one recorded conversation, in the values of this library. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentkit.core.contracts.blocks import freeze_mapping, no_entries
from agentkit.core.contracts.types import Message, ToolSchema, Usage
from agentkit.models.usage import UsageReading
from agentkit.state.context import WorkingContext

from .report import Report


@dataclass(frozen=True)
class Response:
    """One response of a model.

    `index`: the message of `history` that it produced; None when that message is not in it (a branch that was rewound,
    the response of a request that nothing followed). `reading`: its usage, None when the file tells none. `time`: ISO
    8601 as far as the file says.
    """

    index: int | None
    reading: UsageReading | None = None
    model: str | None = None
    time: str | None = None
    id: str | None = None

    @property
    def usage(self) -> Usage | None:
        return self.reading.usage if self.reading is not None else None


@dataclass(frozen=True)
class Compaction:
    """A compaction that the recording client made.

    `index`: the summary's place in `history`. `kept`: the messages of `history` that stayed verbatim beside it.
    `tokens_before` and `tokens_after`: the context's size as the client saw it, None when not recorded.
    """

    index: int
    trigger: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    kept: tuple[int, ...] = ()


@dataclass(frozen=True)
class CallLink:
    """The call that started a sub-agent: the parent conversation's id, and the call's id there (None when unknown)."""

    transcript_id: str
    call_id: str | None = None


@dataclass(frozen=True)
class Transcript:
    """One conversation of a recorded file.

    `history`: all messages in order, system text in front included, nothing folded away. `context`: what the agent
    would send next; after a recorded compaction that is the summary and what was kept. `usage`: the sum over
    `responses`, which hold what was spent on abandoned branches too, or the file's own totals where it has only those.
    `tools`: the tools that were offered, as far as recorded. `meta`: what else the file says about the conversation.
    `parent`: for a sub-agent, the call that started it.
    """

    format: str
    id: str = ""
    label: str = ""
    context: WorkingContext = field(default_factory=WorkingContext)
    history: tuple[Message, ...] = ()
    compactions: tuple[Compaction, ...] = ()
    tools: tuple[ToolSchema, ...] = ()
    usage: Usage = field(default_factory=Usage)
    responses: tuple[Response, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=no_entries)
    report: Report = field(default_factory=Report)
    parent: CallLink | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "meta", freeze_mapping(self.meta, "Transcript.meta"))

    @property
    def request(self) -> Mapping[str, Any]:
        """The recorded request less its messages (model, tools, thinking); empty when there is none."""
        found = self.meta.get("request")
        return found if isinstance(found, Mapping) else no_entries()
