"""What the prompt of a stored context is made of, for those who look from outside. Reads the folders of skills and the
store that the settings name, also beside a running daemon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agentd.config import Settings
from agentd.context.prompt import StandingData, VolatileData, standing_data
from agentd.context.record import ROOT, ContextState
from agentd.context.registry import NotYours
from agentd.records.opening import FILE

from .memories import Memories
from .opening import reading
from .principals import sender_of
from .skills import SkillLibrary, sources_of
from .standing import tool_lines, volatile_data
from .tools.box import ToolBox
from .tools.internal import internal_tools


async def prompt_data(
    settings: Settings, context: str, environ: Mapping[str, str], clock: Callable[[], int]
) -> tuple[StandingData, VolatileData]:
    """What both parts of a context's prompt read. The root agent's has one before anything is stored. `clock` in ms.

    Raises NotYours where there is no such context, StoreError, Corrupt or FormatError where it cannot be read.
    """
    state, keys = await _stored(settings, context, environ, clock)
    library = SkillLibrary(sources_of(settings.skills, lambda name: None), settings.skills)
    try:
        catalogue = await library.discover()
    finally:
        await library.aclose()
    sender = sender_of(settings, state.principal)
    tools = tool_lines(ToolBox(internal_tools(), settings), sender, settings)
    standing = standing_data(settings, tools=tools, catalogue=catalogue, principal=(sender.id, sender.role))
    return standing, volatile_data(state, keys, clock())


async def _stored(
    settings: Settings, context: str, environ: Mapping[str, str], clock: Callable[[], int]
) -> tuple[ContextState, Sequence[str]]:
    """The state of a context, and the keys in memory that its prompt shows."""
    if context == ROOT and not _has_store(settings, environ):
        return ContextState(ROOT), ()
    async with reading(settings, environ) as reader:
        try:
            state = await reader.state(context)
        except NotYours:
            if context != ROOT:
                raise
            state = ContextState(ROOT)
        owner = None if context == ROOT else state.principal
        memory = Memories(reader.records, settings, clock).of_owner(owner)
        return state, await memory.prompt_keys()


def _has_store(settings: Settings, environ: Mapping[str, str]) -> bool:
    return settings.store_kind != "memory" and (settings.store_folder(environ) / FILE).exists()
