"""A transcript as the text of another form, and what had to be repaired for it. Touches only its arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agentkit.core.contracts.validity import ANTHROPIC, OPENAI_CHAT, Rules
from agentkit.transcripts import Transcript, dumps, to_anthropic, to_openai

from .measure import problems
from .shape import json_document


class Target(NamedTuple):
    """A provider's request: who writes it, and by which rules it is repaired."""

    write: Callable[[Transcript], dict[str, Any]]
    rules: Rules
    check_as: str
    """The name of the rules on the command line."""


TARGETS: Mapping[str, Target] = {
    "anthropic": Target(to_anthropic, ANTHROPIC, "anthropic"),
    "openai": Target(to_openai, OPENAI_CHAT, "openai-chat"),
}


def converted(transcript: Transcript, target: str, *, a_line: bool = False) -> str:
    """The conversation as a request of a provider (indented, or in one line), or in agentkit's own form.

    Raises EmptyRequestError where a request would have nothing but system text.
    """
    found = TARGETS.get(target)
    return dumps(transcript) if found is None else json_document(found.write(transcript), a_line=a_line)


def repairs(transcript: Transcript, target: str) -> str:
    """What a request differs in from what was recorded, in a few words; empty where it does not."""
    found = TARGETS.get(target)
    if found is None:
        return ""
    codes = Counter(problem.code for problem, _ in problems(transcript, found.rules))
    if not codes:
        return ""
    listed = ", ".join(f"{code} ({count})" if count > 1 else code for code, count in codes.items())
    return f"repaired for {target}: {listed}; 'agentkit check --rules {found.check_as}' says where"
