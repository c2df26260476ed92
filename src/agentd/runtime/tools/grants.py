"""Which tools a sender may use. Touches only its arguments: what is not granted is neither offered nor run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agentd.config import Settings
from agentd.config.section import ALL
from agentd.runtime.patterns import matches
from agentd.runtime.principals import Role

BY_ROLE: Final[Mapping[Role, tuple[str, ...]]] = {
    "root": ALL,
    "operator": ALL,
    # That other contexts' runs and subagents are out of reach is up to those tools: they look at the caller's own.
    "user": ALL,
    "agent": ALL,
    "anonymous": ("plan.*", "skills.*", "context.*", "think", "finish", "memory.get", "memory.list"),
}
"""What each role may have at most; the settings only take away from it."""


def is_granted(
    settings: Settings,
    role: Role,
    name: str,
    *,
    internal: bool = False,
    server: str | None = None,
    tool: str | None = None,
) -> bool:
    """Whether `role` may use the tool offered as `name`: the daemon's own (`internal`), or `tool` of `server`.

    A list that allows means the name that is offered, or `<server>.<tool>`. One that disables means the tool's own name
    too, so that nothing comes back under another name because a second server has one like it.
    """
    called = {name} if server is None else {name, f"{server}.{tool}"}
    known = called if tool is None else {*called, tool}
    if any(matches(one, settings.tools.disabled) for one in known):
        return False
    if role == "anonymous" and not internal:
        return False
    lists = [BY_ROLE[role]]
    if (narrowed := settings.tools.grants.get(role)) is not None:
        lists.append(narrowed)
    if internal:
        lists.append(settings.agent.tools.internal)
    elif server is not None:
        lists.append(settings.agent.tools.mcp)
    return all(any(matches(one, patterns) for one in called) for patterns in lists)
