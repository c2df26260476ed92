"""What a background run is, and what its tool sees. Values, and a desk that touches what is handed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from agentd.config import Settings
from agentd.context.resident import Context
from agentd.records import Records

from .child import quoted
from .memory import MemoryStore
from .principals import Role
from .skills import SkillLibrary
from .tools.base import Answer, Invocation, ToolError

MOST = 262_144
"""Characters of a result that a run keeps; of a longer one the beginning, and that it was cut is said."""


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run. `id`: the place of the call that started it; `key`: the idempotency key of its own call. `state`:
    working, completed, failed, canceled or unknown; `ended`, `text`: how it ended, in words; `content`: its result.
    Times in ms, `seconds`: how long it may take."""

    id: str
    context: str
    turn: str
    tool: str
    arguments: dict[str, Any]
    key: str
    principal: str
    role: Role
    seconds: float
    state: str = "working"
    ended: bool = False
    text: str = ""
    content: Any = None
    started: int = 0
    updated: int = 0

    @property
    def told(self) -> dict[str, Any]:
        """What the model is told of it."""
        told: dict[str, Any] = {"id": self.id, "state": self.state}
        if self.ended:
            told["result"] = self.content if self.state == "completed" else self.text
        return told

    @property
    def note(self) -> str:
        """What its end is told as: the result is quoted, since it is data and no order."""
        return f"Run {self.id} of {self.tool} has ended as {self.state}. {quoted(self.text)}"


class RunDesk:
    """What a tool sees that runs beside the turns: it can ask nobody, wait for nothing, and change no conversation."""

    def __init__(self, records: Records, memory: MemoryStore, skills: SkillLibrary, settings: Settings, held: Context,
                 clock: Callable[[], int], ids: Callable[[], str]) -> None:  # fmt: skip
        self.records, self.memory, self.skills, self.settings = records, memory, skills, settings
        self.context, self._clock, self.new_id = held, clock, ids
        self.window = held.state.model_window or 0
        self.waited = 0.0

    @property
    def now(self) -> int:
        return self._clock()

    def status(self) -> dict[str, Any]:
        return {"instance": {"name": self.settings.agent.name}}

    async def outcome(self, kind: str, id: str) -> tuple[bool, str] | None:
        return None

    async def compact(self, target_tokens: int | None = None, keep_last: int | None = None) -> NoReturn:
        self._refuse()

    async def ask(
        self, call: Invocation, question: str, *, options: Sequence[str] = (), schema: Mapping[str, Any] | None = None,
        seconds: float | None = None, part: str = "",
    ) -> NoReturn:  # fmt: skip
        self._refuse()

    async def sleep(self, call: Invocation, until: int) -> NoReturn:
        self._refuse()

    async def work(self, op: str, call: Invocation, given: Mapping[str, Any]) -> NoReturn:
        self._refuse()

    async def think(
        self, prompt: str, schema: Mapping[str, Any] | None, reads: Sequence[str], skills: Sequence[str]
    ) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ToolError("a background run does only what its own tool does")


def kept(answer: Answer) -> Any:
    """What a run keeps of a result: its JSON, and of pictures and files that there were some."""
    if not answer.parts:
        return answer.content
    left = f"{len(answer.parts)} pictures or files came with it; a background run keeps none of them"
    return {"content": answer.content, "left_out": left}
