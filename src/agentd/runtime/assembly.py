"""Putting the parts of one instance together. Opens the models that the settings name; everything else is handed in."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from agentd.config import Settings
from agentd.context.registry import Contexts
from agentd.records import Trouble
from agentkit.core.contracts.hashing import stable_hash
from agentkit.core.contracts.ports import LLM
from agentkit.state.context import CharClassTokenCounter

from .calls import ModelCalls
from .events import Events
from .governor import Governor
from .inbox import Inbox
from .kill_points import KillPoints
from .memories import Memories
from .models import models_of, open_models
from .opening import Opened, scope_of
from .pictures import Pictures
from .reducing import Reducer
from .replayed import SERVER, replayed_tools
from .requests import Requests
from .residents import Residents
from .runs import Runs
from .servers import McpServers
from .services import Services
from .skills import SkillLibrary, SkillSource, sources_of
from .slots import Slots
from .standing import Prompts
from .subagents import Subagents
from .tools.base import Tool
from .tools.box import ToolBox
from .tools.internal import internal_tools
from .triggers import Triggers
from .waits import Waits


async def assemble(
    opened: Opened,
    settings: Settings,
    *,
    model: LLM | None,
    tools: Iterable[Tool],
    skills: Sequence[SkillSource],
    folder: Path | None,
    people: bool = False,
) -> Services:
    """The services of an instance whose store is open. `people`: whether there is anybody who answers its questions."""
    clock = opened.clock
    events = Events(clock, ring=settings.observability.events_ring)
    opened.troubles.listener = lambda trouble: _told(events, trouble)
    kills = KillPoints.of_environment(os.environ)
    governor = Governor(settings, clock, sleep=opened.sleep)
    await governor.ready(opened.records)
    models = (
        open_models(settings, folder=folder, sleep=opened.sleep)
        if model is None
        else models_of(model, settings, sleep=opened.sleep)
    )
    box = ToolBox([*internal_tools(), *tools], settings, sleep=opened.sleep)
    if models.recorded is not None:
        box.set_server(SERVER, replayed_tools(models.recorded))
    servers = McpServers(box, sleep=opened.sleep, elicits=people)
    memories = Memories(opened.records, settings, clock, call=servers.memory_call)
    # Servers are asked for theirs once they are there; until then what is wrong with them says so.
    library = SkillLibrary([*sources_of(settings.skills, servers.find), *skills], settings.skills)
    await library.discover()
    servers.heard.append(library.heard)
    await servers.open(settings.mcp.servers)
    counter = CharClassTokenCounter(settings.intelligence.model)
    requests = Requests(
        clock, counter, repairs=models.repairs, cache_key=_cache_key(settings), serving=lambda: models.serving
    )
    services: Services

    def resident() -> int:
        return services.settings.context.resident

    def inbox_limit() -> int:
        return services.settings.limits.inbox

    residents = Residents(
        Contexts(counter), opened.records, events, clock=clock, limit=resident, forget=requests.forget
    )
    inbox = Inbox(opened.records, clock=clock, ids=opened.ids, limit=inbox_limit)
    services = Services(
        settings=settings,
        clock=clock,
        sleep=opened.sleep,
        ids=opened.ids,
        records=opened.records,
        events=events,
        kills=kills,
        residents=residents,
        inbox=inbox,
        governor=governor,
        calls=ModelCalls(models, governor, events, Pictures(opened.records)),
        requests=requests,
        reducer=Reducer(opened.records, events, kills, clock=clock),
        memories=memories,
        skills=library,
        box=box,
        servers=servers,
        prompts=Prompts(box, memories, library, events, clock),
        slots=Slots(lambda: services.settings.agent.max_parallel_turns),
        waits=Waits(opened.records, clock=clock, sleep=opened.sleep, can_ask=people),
        subagents=Subagents(
            opened.records,
            inbox,
            residents,
            events,
            clock=clock,
            settings=lambda: services.settings,
        ),
        triggers=Triggers(
            opened.records,
            inbox,
            residents,
            events,
            kills,
            clock=clock,
            sleep=opened.sleep,
            settings=lambda: services.settings,
            require_room=opened.require_room,
        ),
        runs=Runs(
            opened.records,
            inbox,
            residents,
            events,
            box,
            memories,
            library,
            clock=clock,
            ids=opened.ids,
            settings=lambda: services.settings,
        ),
        given_skills=tuple(skills),
    )
    governor.payer = services.subagents.top
    services.subagents.on_end = services.runs.abandon
    services.prompts.at_work = services.at_work
    return services


def _cache_key(settings: Settings) -> str:
    """One key for all contexts of an instance: they share their prompt and tools. Hashed, as it leaves the house."""
    return stable_hash([scope_of(settings).key(), settings.agent.name])[:32]


def _told(events: Events, trouble: Trouble) -> None:
    reason = f"{type(trouble.error).__name__}: {trouble.error}"
    events.emit("store.error", None, None, operation=trouble.operation, attempt=trouble.attempt, detail=reason,
                given_up=trouble.is_last)  # fmt: skip
