"""What the daemon's own tools see of the context that calls them, for one turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agentd.config import Settings
from agentd.context.registry import status_of
from agentd.context.resident import Context
from agentd.records import Records

from .commands import told
from .memory import MemoryStore
from .skills import SkillLibrary

if TYPE_CHECKING:
    from .actor import Actor
    from .turns import Turn


class TurnDesk:
    """The desk of a turn."""

    def __init__(self, actor: Actor, turn: Turn) -> None:
        self._actor, self._turn = actor, turn

    @property
    def context(self) -> Context:
        return self._actor.held

    @property
    def settings(self) -> Settings:
        return self._turn.settings

    @property
    def now(self) -> int:
        return self._actor.services.clock()

    @property
    def window(self) -> int:
        return self._actor.services.requests.window(self.settings).tokens

    @property
    def records(self) -> Records:
        return self._actor.services.records

    @property
    def memory(self) -> MemoryStore:
        return self._actor.services.memory

    @property
    def skills(self) -> SkillLibrary:
        return self._actor.services.skills

    def new_id(self) -> str:
        return self._actor.services.ids()

    def status(self) -> dict[str, Any]:
        actor = self._actor
        window = actor.services.requests.window(self.settings)
        return {
            "instance": {
                "name": self.settings.agent.name,
                "model": self.settings.intelligence.model,
                "contexts_in_memory": len(actor.services.residents.contexts),
                "waiting": len(actor.services.inbox),
            },
            "context": asdict(status_of(actor.held.state, window.tokens, window.source)),
        }

    async def compact(self, target_tokens: int | None = None, keep_last: int | None = None) -> dict[str, Any]:
        _, situation = await self._actor.prepare(self._turn)
        made = await self._actor.reduce(self._turn, situation, command=True, target=target_tokens, keep_last=keep_last)
        return told(made, self._actor.held)

    async def think(
        self, prompt: str, schema: Mapping[str, Any] | None, reads: Sequence[str], skills: Sequence[str]
    ) -> Any:
        return await self._actor.think(self._turn, prompt, schema, reads, skills)
