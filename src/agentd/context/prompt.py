"""The prompt of an agent: its templates, the data they read, and what stands in where one fails. Touches only its
arguments.

The *standing* part comes before everything that a provider's prompt cache keeps, so it may read nothing that changes
from turn to turn. The *volatile* part comes behind all of it and is never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from agentd.config import Settings
from agentkit.core.contracts.surrogates import replace_surrogates

from .prompt_data import STANDING_NAMES, VOLATILE_NAMES, StandingData, ToolLine, VolatileData, standing_data
from .prompt_text import STANDING, VOLATILE
from .template import Compiled, Problem, RenderError, compiled

__all__ = [
    "Changed",
    "Prompt",
    "Rendered",
    "StandingData",
    "StandingPrompt",
    "ToolLine",
    "VolatileData",
    "checked",
    "prompt_of",
    "prompt_of_settings",
    "render_standing",
    "render_volatile",
    "standing_data",
]

Part: TypeAlias = Literal["standing", "volatile"]

_PER_TURN = {
    name: (
        f"{name!r}, which changes from turn to turn",
        "read it in the part `volatile`: the standing part stays the same, for the prompt cache",
    )
    for name in VOLATILE_NAMES.keys() - STANDING_NAMES.keys()
}


# Templates


@dataclass(frozen=True)
class Prompt:
    """Both templates, checked. `warnings`: what is allowed and hardly meant."""

    standing: Compiled
    volatile: Compiled
    warnings: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[str, str]:
        return self.standing.source, self.volatile.source


def checked(source: str, part: Part) -> Compiled | list[Problem]:
    """A template ready to render, or all that is wrong with it."""
    if part == "standing":
        return compiled(source, STANDING_NAMES, _PER_TURN)
    return compiled(source, VOLATILE_NAMES)


@lru_cache(64)
def prompt_of(standing: str | None = None, volatile: str | None = None) -> Prompt:
    """The prompt of these templates, the built-in one for each that is None. Raises ValueError with all problems."""
    made: list[Compiled] = []
    problems: list[str] = []
    given: tuple[tuple[Part, str], ...] = (
        ("standing", STANDING if standing is None else standing),
        ("volatile", VOLATILE if volatile is None else volatile),
    )
    for part, source in given:
        found = checked(source, part)
        if isinstance(found, Compiled):
            made.append(found)
        else:
            problems += [f"{part}{_at(one)}: {one.found}; {one.want}" for one in found]
    if problems:
        raise ValueError("\n".join(problems))
    warnings = () if "instruction" in made[0].reads else (NO_INSTRUCTION,)
    return Prompt(made[0], made[1], warnings)


def prompt_of_settings(settings: Settings, name: str | None = None) -> Prompt:
    """The prompt that is configured: the instance's, or that of subagents that ask for `name`. Raises KeyError naming
    what there is, ValueError for templates that the configuration's rules refuse."""
    found = settings.context.template if name is None else settings.context.templates.get(name)
    if found is None:
        there = ", ".join(sorted(settings.context.templates)) or "none"
        raise KeyError(f"no prompt {name!r} in context.templates; there is: {there}")
    return prompt_of(found.standing, found.volatile)


NO_INSTRUCTION = "the standing template never reads `instruction`, so the model is not told what agent.instruction says"


def _at(problem: Problem) -> str:
    return "" if problem.line is None else f", line {problem.line}"


# Rendering

By: TypeAlias = Literal["template", "built-in", "code"]


@dataclass(frozen=True)
class Rendered:
    """A text of the prompt. `by`: what it was made by; `failures`: what was tried before and why it failed, by name."""

    text: str
    by: By = "template"
    failures: tuple[tuple[str, str], ...] = ()


def render_standing(prompt: Prompt, data: StandingData) -> Rendered:
    """The standing part: by the template, else by the built-in one, else name and instruction. Never empty, and never
    raises."""
    return _rendered(
        (prompt.standing, prompt_of().standing), lambda: data.shown, lambda: _joined(data), may_be_blank=False
    )


def render_volatile(prompt: Prompt, standing: StandingData, data: VolatileData) -> Rendered:
    """The volatile part: by the template, else by the built-in one, else nothing. A template that has nothing to say
    says nothing. Never raises."""
    return _rendered(
        (prompt.volatile, prompt_of().volatile),
        lambda: {**standing.shown, **data.data()},
        lambda: "",
        may_be_blank=True,
    )


def _rendered(
    templates: tuple[Compiled, Compiled], data: Callable[[], dict[str, Any]], last: Callable[[], str], *,
    may_be_blank: bool,
) -> Rendered:  # fmt: skip
    failures: list[tuple[str, str]] = []
    try:
        found = data()
    except (ValueError, TypeError) as error:  # what an embedding program put in `extra`, a plan of another release
        return Rendered(last(), "code", (("data", str(error)),))
    given, own = templates
    ways: list[tuple[By, Compiled]] = [("built-in", own)]
    if given.source != own.source:
        ways.insert(0, ("template", given))
    for by, template in ways:
        try:
            text = template.render(found)
        except RenderError as error:
            failures.append((by, str(error)))
            continue
        if text.strip() or may_be_blank:
            return Rendered(text.strip("\n"), by, tuple(failures))
        failures.append((by, "it gives nothing but blanks"))
    return Rendered(last(), "code", tuple(failures))


def _joined(data: StandingData) -> str:
    texts = [f"You are {data.name.strip() or 'an agent'}.", data.instruction.strip()]
    return replace_surrogates("\n\n".join(text for text in texts if text))


@dataclass(frozen=True)
class Changed:
    """Another standing part than before, so that nothing of a provider's cache fits any more. `segment`: the first of
    the inputs that differs, `at`: the first character that does."""

    segment: str
    at: int


_SEGMENTS = {"name": "instance", "description": "instance", "skill_errors": "skills"}


class StandingPrompt:
    """One standing part over time: rendered again only where its inputs changed, the same object where none did."""

    def __init__(self) -> None:
        self._inputs: tuple[Prompt, StandingData] | None = None
        self._rendered = Rendered("")

    def render(self, prompt: Prompt, data: StandingData) -> tuple[Rendered, Changed | None]:
        """The text, and what changed it since the last time; None where it is the same text, or the first."""
        before, was = self._inputs, self._rendered
        if before is not None and before[0].sources == prompt.sources and before[1] == data:
            return was, None
        self._inputs, self._rendered = (prompt, data), render_standing(prompt, data)
        if before is None or was.text == self._rendered.text:
            return self._rendered, None
        return self._rendered, Changed(_segment(before, (prompt, data)), _first(was.text, self._rendered.text))


def _segment(before: tuple[Prompt, StandingData], now: tuple[Prompt, StandingData]) -> str:
    if before[0].standing.source != now[0].standing.source:
        return "template"
    names: Iterable[str] = (one.name for one in fields(StandingData))
    found = next((name for name in names if getattr(before[1], name) != getattr(now[1], name)), "template")
    return _SEGMENTS.get(found, found)


def _first(old: str, new: str) -> int:
    """The first place where two texts differ."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
