"""What a tool is, what it is called with and what it answers. Values and protocols only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from agentd.config import Settings
from agentd.context.record import Control, Part
from agentd.context.resident import Context
from agentd.records import Records, Write
from agentd.runtime.memory import MemoryStore
from agentd.runtime.principals import Principal
from agentd.runtime.skills import SkillLibrary

FinishStatus: TypeAlias = Literal["completed", "failed", "refused", "cancelled"]


class EndsTurn(Exception):
    """Raised by what a desk does, it goes through the tool and the box: the turn ends, and no result is made of it."""


class ToolError(Exception):
    """What a tool says to the model: its text becomes the result, as an error."""


@dataclass(frozen=True)
class Finish:
    """The turn is to end after this round. `exit`: exit code of a one-shot prompt, None for that of the status."""

    status: FinishStatus = "completed"
    output: Any = None
    reason: str = ""
    exit: int | None = None


@dataclass(frozen=True)
class Answer:
    """What a call came to. `content`: any JSON. `bodies` and `writes`: control entries and rows that are committed
    together with the result, or not at all."""

    content: Any = None
    is_error: bool = False
    parts: tuple[Part, ...] = ()
    bodies: tuple[Control, ...] = ()
    writes: tuple[Write, ...] = ()
    finish: Finish | None = None


class Desk(Protocol):
    """What the daemon's own tools see of the context that calls them. `settings`: those that the turn started with;
    `now` in ms; `window`: tokens of the model in use."""

    @property
    def context(self) -> Context: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def now(self) -> int: ...

    @property
    def window(self) -> int: ...

    @property
    def records(self) -> Records: ...

    @property
    def memory(self) -> MemoryStore: ...

    @property
    def skills(self) -> SkillLibrary: ...

    def new_id(self) -> str:
        """An id that is nobody else's."""
        ...

    def status(self) -> dict[str, Any]:
        """A summary of the instance and of this context."""
        ...

    async def outcome(self, kind: str, id: str) -> tuple[bool, str] | None:
        """How a run, subagent or task of this context's owner ended: whether well, and its text. None while it has
        not, and for one that there is none of."""
        ...

    async def compact(self, target_tokens: int | None = None, keep_last: int | None = None) -> dict[str, Any]:
        """Reduce the context now: version, est_tokens, folded, and `declined` with the reason where it was not."""
        ...

    @property
    def waited(self) -> float:
        """Seconds that the turn has waited so far for people and times, which are no time of its calls."""
        ...

    async def ask(
        self,
        call: Invocation,
        question: str,
        *,
        options: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        part: str = "",
    ) -> tuple[Any, str]:
        """A person's answer to a question, and who gave it. Waits without a slot for as long as it takes, over the
        lives of the process, or `seconds`. `part` tells several questions of one call apart. Raises ToolError where
        nobody answers."""
        ...

    async def work(self, op: str, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        """What a tool about runs and subagents answers, by its name. Raises ToolError."""
        ...

    async def sleep(self, call: Invocation, until: int) -> None:
        """Wait without a slot until a time (ms), over the lives of the process. The first `until` of a call counts."""
        ...

    async def think(
        self, prompt: str, schema: Mapping[str, Any] | None, reads: Sequence[str], skills: Sequence[str]
    ) -> Any:
        """The model's answer to one prompt: text, or by `schema`. `reads`: memory keys, `skills`: names, whose texts
        go along. Raises ToolError where there is none."""
        ...


@dataclass(frozen=True)
class Invocation:
    """One call. `tool`: the name that the model called; `key`: idempotency key, the same when it is run again in
    another life. `context`, `turn`, `round`, `index` say where it stands; `principal`: in whose name."""

    tool: str
    arguments: dict[str, Any]
    call: str
    key: str
    context: str
    turn: str
    round: int
    index: int
    principal: Principal
    desk: Desk


@dataclass(frozen=True)
class Tool:
    """A tool. `name`: dotted for the daemon's own; `parameters` and `output`: JSON Schemas of arguments and result.

    `read_only`: a call changes nothing, so calls may run together and again; `idempotent`: run twice with the same
    arguments and key it comes to the same. `waits`: a call waits for people, time or other work, so that
    `limits.tool_timeout` is no limit of it. `internal`: one of the daemon's own, whose changes are committed together
    with their result; `holds`: what is held from the call until they are (`ToolBox.holding`).
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(hash=False)
    run: Callable[[Invocation], Awaitable[Answer]]
    read_only: bool = False
    idempotent: bool = False
    internal: bool = False
    output: Mapping[str, Any] | None = field(default=None, hash=False)
    holds: Callable[[Desk], AbstractAsyncContextManager[Any]] | None = None
    waits: bool = False
