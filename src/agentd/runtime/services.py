"""What everything in one life of the daemon shares. Values and hands; no decisions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentd.config import Settings
from agentd.records import Records

from .calls import ModelCalls
from .events import Events
from .governor import Governor
from .inbox import Inbox
from .kill_points import KillPoints
from .memories import Memories
from .reducing import Reducer
from .requests import Requests
from .residents import Residents
from .runs import Runs
from .servers import McpServers
from .skills import SkillLibrary, SkillSource, sources_of
from .slots import Slots
from .standing import Prompts
from .subagents import Subagents
from .tools.box import ToolBox
from .triggers import Triggers
from .waits import Waits


@dataclass
class Services:
    """One instance's parts. `settings` is replaced by a reload; a turn keeps those it started with. `clock` in ms,
    `sleep` in seconds."""

    settings: Settings
    clock: Callable[[], int]
    sleep: Callable[[float], Awaitable[None]]
    ids: Callable[[], str]
    records: Records
    events: Events
    kills: KillPoints
    residents: Residents
    inbox: Inbox
    governor: Governor
    calls: ModelCalls
    requests: Requests
    reducer: Reducer
    memories: Memories
    skills: SkillLibrary
    box: ToolBox
    servers: McpServers
    prompts: Prompts
    slots: Slots
    waits: Waits
    subagents: Subagents
    runs: Runs
    triggers: Triggers
    given_skills: Sequence[SkillSource] = ()
    """Sources that the embedding program handed in, besides the configured ones."""
    is_degraded: bool = False
    """Whether the store fails and work waits for it (`store.on_error: degrade`)."""

    def at_work(self, context: str) -> list[dict[str, Any]]:
        """The background runs and subagents of a conversation that have not ended."""
        runs = [{"run": run.id, "tool": run.tool, "started": run.started} for run in self.runs.of_context(context)]
        children = self.subagents.at_work(context)
        return runs + [{"subagent": one.id, "mode": one.mode, "started": one.started} for one in children]

    async def reload(self, settings: Settings) -> None:
        """Take over other settings; whatever copies of them its parts keep are replaced."""
        self.settings = settings
        self.box.settings = settings
        self.governor.configure(settings)
        await self.governor.ready(self.records)
        self.memories.reload(settings)
        self.triggers.update(settings.triggers)
        await self.servers.reload(settings.mcp.servers)
        await self.skills.update([*sources_of(settings.skills, self.servers.find), *self.given_skills], settings.skills)
