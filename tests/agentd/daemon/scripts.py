"""A model that follows a script for each agent, told apart by what it was asked last: `do <name>` or `be <name>`."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from agentkit.core.contracts.errors import PermanentError
from agentkit.core.contracts.requests import ChatRequest
from tests.agentd.daemon.house import Said, StrictLLM

ORDER = re.compile(r"(?:^|>|\n)((?:do|be) \w+)")
Script: TypeAlias = list[Said] | Callable[[ChatRequest], Said | Awaitable[Said]]


def asked(request: ChatRequest) -> str:
    """What the agent of a request was asked last."""
    found: list[str] = ORDER.findall("\n".join(m.content for m in request.messages if m.role == "user"))
    return found[-1] if found else ""


def has_results(request: ChatRequest) -> int:
    """Results since then."""
    at = max(i for i, m in enumerate(request.messages) if m.role == "user" and ORDER.search(m.content))
    return sum(m.role == "tool" for m in request.messages[at:])


def handle_of(request: ChatRequest, at: int = 0) -> str:
    """The handle of the subagent that was started as number `at`."""
    return _nth(request, "handle", at)


def id_of(request: ChatRequest, at: int = 0) -> str:
    """The id of the background run that was started as number `at`."""
    return _nth(request, "id", at)


def _nth(request: ChatRequest, key: str, at: int) -> str:
    told = [json.loads(m.content) for m in request.messages if m.role == "tool" and m.content.startswith("{")]
    found: list[str] = list(dict.fromkeys(one[key] for one in told if key in one))
    return found[at] if at < len(found) else "none yet"


def script(**by: Script) -> StrictLLM:
    """A model that says by the second word of what it is asked which turns it follows."""

    def answer(request: ChatRequest) -> Said | Awaitable[Said]:
        if request.response_format is not None:
            return PermanentError("this model writes no summaries")
        turns = by[asked(request).split()[1]]
        return turns(request) if callable(turns) else turns[has_results(request)]

    return StrictLLM(answer=answer)


def run(instruction: str = "be child", **more: Any) -> Said:
    """A call that starts a subagent."""
    return [("subagent.run", {"instruction": instruction, **more})]
