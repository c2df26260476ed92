"""What the daemon's own tools see of the context that calls them, for one turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agentd.config import Settings
from agentd.context.registry import status_of
from agentd.context.resident import Context
from agentd.records import Records

from .beside import Beside, Working
from .commands import told
from .gates import Gates
from .memory import MemoryStore
from .outcomes import outcome_of
from .skills import SkillLibrary
from .tools.base import Invocation
from .writer import Writer


class TurnDesk:
    """The desk of a turn."""

    def __init__(self, writer: Writer, turn: Working) -> None:
        self._writer, self._turn = writer, turn
        self.gates = Gates(writer, turn)
        self._beside = Beside(writer, turn, self.gates)

    @property
    def context(self) -> Context:
        return self._writer.held

    @property
    def settings(self) -> Settings:
        return self._turn.settings

    @property
    def now(self) -> int:
        return self._writer.services.clock()

    @property
    def window(self) -> int:
        return self._writer.services.requests.window(self.settings).tokens

    @property
    def records(self) -> Records:
        return self._writer.services.records

    @property
    def memory(self) -> MemoryStore:
        return self._writer.services.memories.of(self._writer.held)

    @property
    def skills(self) -> SkillLibrary:
        return self._writer.services.skills

    def new_id(self) -> str:
        return self._writer.services.ids()

    def status(self) -> dict[str, Any]:
        writer = self._writer
        window = writer.services.requests.window(self.settings)
        return {
            "instance": {
                "name": self.settings.agent.name,
                "model": self.settings.intelligence.model,
                "contexts_in_memory": len(writer.services.residents.contexts),
                "waiting": len(writer.services.inbox),
                "degraded": writer.services.is_degraded,
            },
            "servers": writer.services.servers.status(),
            "at_work": writer.services.at_work(writer.id),
            "context": asdict(status_of(writer.held.state, window.tokens, window.source)),
        }

    async def outcome(self, kind: str, id: str) -> tuple[bool, str] | None:
        return await outcome_of(self._writer.services, self._writer.held, kind, id)

    async def compact(self, target_tokens: int | None = None, keep_last: int | None = None) -> dict[str, Any]:
        _, situation = await self._writer.prepare(self._turn)
        made = await self._writer.reduce(self._turn, situation, command=True, target=target_tokens, keep_last=keep_last)
        return told(made, self._writer.held)

    @property
    def waited(self) -> float:
        return self._writer.services.waits.waited(self._turn.id)

    async def ask(
        self, call: Invocation, question: str, *, options: Sequence[str] = (), schema: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        part: str = "",
    ) -> tuple[Any, str]:  # fmt: skip
        return await self.gates.ask(call, question, options=options, schema=schema, seconds=seconds, part=part)

    async def work(self, op: str, call: Invocation, given: Mapping[str, Any]) -> dict[str, Any]:
        return await self._beside.do(op, call, given)

    async def sleep(self, call: Invocation, until: int) -> None:
        await self.gates.sleep(call, until)

    async def think(
        self, prompt: str, schema: Mapping[str, Any] | None, reads: Sequence[str], skills: Sequence[str]
    ) -> Any:
        return await self._writer.think(self._turn, prompt, schema, reads, skills)
