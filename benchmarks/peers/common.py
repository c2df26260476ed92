"""What the drivers of other libraries share: a conversation as they read it, and where a replay of it stands.

Runs in the peers' own environment, without agentkit. Nothing here reaches further than the fake provider.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

KEY = "loopback"
"""What the clients are given for a key; the fake provider takes any."""


class Script:
    """One conversation, as `Conversation.plain` wrote it. `number`: requests that were answered so far; each driver
    counts them up. `results`: what the calls come to, in order."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.system: str = data["system"]
        self.tools: list[dict[str, Any]] = data["tools"]
        self.steps: list[dict[str, Any]] = data["steps"]
        self.number = 0
        self.results: deque[str] = deque(call["result"] for step in self.steps for call in step["calls"])

    @property
    def tasks(self) -> Iterator[str]:
        """What the user says, run by run."""
        return (step["task"] for step in self.steps if step["task"] is not None)

    @property
    def instructions(self) -> str:
        """System text of the next request: these libraries' place for what an agent is to know, the clock included."""
        return f"{self.system}\n\n{self._step['closing']}"

    @property
    def summary(self) -> str | None:
        """What stands for all but the last turn from the next request on."""
        found: str | None = self._step["summary"]
        return found

    @property
    def _step(self) -> dict[str, Any]:
        return self.steps[min(self.number, len(self.steps) - 1)]

    async def answered(self, *_: Any) -> None:
        """Called with each response of the provider."""
        self.number += 1
