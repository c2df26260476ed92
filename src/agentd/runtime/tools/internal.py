"""The daemon's own tools, all of them."""

from __future__ import annotations

from .artifact_tools import artifact_tools
from .base import Tool
from .context_tools import context_tools
from .human_tools import human_tools
from .memory_tools import memory_tools
from .plan_tools import plan_tools
from .skill_tools import skill_tools
from .turn_tools import turn_tools
from .work_tools import work_tools


def internal_tools() -> list[Tool]:
    """Every tool that the daemon brings, in the order of their names."""
    found = [
        *artifact_tools(), *context_tools(), *human_tools(), *memory_tools(), *plan_tools(), *skill_tools(),
        *turn_tools(), *work_tools(),
    ]  # fmt: skip
    return sorted(found, key=lambda tool: tool.name)
