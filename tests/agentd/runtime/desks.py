"""A desk for tools under test: a context, records in memory, and what the tools asked the actor for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentd.config import Settings
from agentd.context.registry import Contexts
from agentd.records import Ids, Records
from agentd.runtime.memory import MemoryStore
from agentd.runtime.principals import Principal
from agentd.runtime.skills import SkillLibrary
from agentd.runtime.tools.base import Answer, Invocation, ToolError
from agentkit.core.contracts.scope import Scope
from agentkit.state.stores import InMemoryStore as Store

USER = Principal("ann", "user")


def settings_of(**sections: Any) -> Settings:
    """Settings with a model, and these sections."""
    model = {"endpoints": ["replay:chat.jsonl"], "model": "claude-sonnet-4-6", **sections.pop("intelligence", {})}
    return Settings.model_validate(_listed({"intelligence": model, **sections}))


def _listed(value: Any) -> Any:
    """Lists as the settings hold them."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return tuple(_listed(item) for item in value) if isinstance(value, list) else value


class Clock:
    """Milliseconds that the test moves."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class FakeDesk:
    """What an actor hands to its tools. `thoughts`: what `think` answers or raises."""

    def __init__(self, settings: Settings | None = None, *, id: str = "c1", records: Records | None = None) -> None:
        self.clock = Clock()
        self.settings = settings or settings_of()
        self.ids = Ids(self.clock, lambda n: b"\7" * n)
        self.records = records or records_of(self.clock, self.ids)
        self.contexts = Contexts()
        self.context = self.contexts.conversation(id, "ann", now=self.clock())
        self.window = 100_000
        self.memory = MemoryStore(self.records, self.settings.memory, self.clock)
        self.outcomes: dict[tuple[str, str], tuple[bool, str]] = {}
        self.skills = SkillLibrary()
        self.asked: list[tuple[Any, ...]] = []
        self.thoughts: list[Any] = []
        self.waited = 0.0

    @property
    def now(self) -> int:
        return self.clock()

    def new_id(self) -> str:
        return self.ids()

    def status(self) -> dict[str, Any]:
        return {"instance": "one", "context": {"id": self.context.id}}

    async def outcome(self, kind: str, id: str) -> tuple[bool, str] | None:
        return self.outcomes.get((kind, id))

    async def compact(self, target_tokens: int | None = None, keep_last: int | None = None) -> dict[str, Any]:
        self.asked.append(("compact", target_tokens, keep_last))
        return {"version": 2, "est_tokens": 10, "folded": 3}

    async def ask(
        self, call: Invocation, question: str, *, options: Sequence[str] = (), schema: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        part: str = "",
    ) -> tuple[Any, str]:  # fmt: skip
        self.asked.append(("ask", question, tuple(options), schema, seconds))
        return (options[0] if options else "yes"), "ann"

    async def work(self, op: str, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((op, dict(given)))
        return {"id": "r1", "handle": "s1", "state": "working", "handles": [], "woken_by": "work"}

    async def sleep(self, call: Invocation, until: int) -> None:
        self.asked.append(("sleep", until))

    async def think(
        self, prompt: str, schema: Mapping[str, Any] | None, reads: Sequence[str], skills: Sequence[str]
    ) -> Any:
        self.asked.append(("think", prompt, schema, tuple(reads), tuple(skills)))
        if not self.thoughts:
            raise ToolError("no thought")
        thought = self.thoughts.pop(0)
        if isinstance(thought, Exception):
            raise thought
        return thought

    def calling(
        self, tool: str, arguments: dict[str, Any] | None = None, principal: Principal = USER, index: int = 0
    ) -> Invocation:
        return Invocation(
            tool, arguments or {}, f"call-{index}", f"{self.context.id}:t1:1:{index}", self.context.id, "t1", 1, index,
            principal, self,
        )  # fmt: skip

    async def settle(self, answer: Answer) -> Answer:
        """What the actor does with an answer: control entries and rows in one commit."""
        for body in answer.bodies:
            self.context.append(body, now=self.now, turn="t1", round=1, source="tool")
        writes = [*self.context.writes(), *answer.writes]
        if writes:
            rows = await self.records.commit(writes)
            self.context.stored(rows)
            self.memory.applied(answer.writes)
        return answer


def records_of(clock: Clock, ids: Ids) -> Records:
    return Records(Store(lambda: clock() / 1000), Scope(), instance="one", clock=clock, ids=ids)
