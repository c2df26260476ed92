"""What stands in front of every request and behind it: prompt, tools, the closing block with plan, memory keys and
time. Reads what the instance has in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any

from agentd.config import Settings
from agentd.context import plan as plans
from agentd.context.prompt import (
    Prompt,
    Rendered,
    StandingData,
    StandingPrompt,
    ToolLine,
    VolatileData,
    prompt_of_settings,
    render_volatile,
    standing_data,
)
from agentd.context.record import ContextState
from agentd.context.resident import Context
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.offers import ToolSchema

from .events import Events
from .memories import Memories
from .principals import Principal
from .requests import Standing, closing_block
from .skills import SkillLibrary
from .tools.box import ToolBox

MOST_STANDING = 256
"""Prompts with their tools that are kept ready; there is one for each kind of sender."""


class Prompts:
    """The prompts of one instance, one standing text for each kind of sender, rendered again only when its inputs
    change."""

    def __init__(self, box: ToolBox, memories: Memories, skills: SkillLibrary, events: Events, clock: Any) -> None:
        self._box, self._memories, self._skills, self._events, self._clock = box, memories, skills, events, clock
        self._standing: dict[Principal, StandingPrompt] = {}
        self._data: dict[Principal, tuple[tuple[object, ...], StandingData]] = {}
        self._made: dict[Principal, Standing] = {}
        self._volatile: tuple[tuple[object, ...], Rendered] | None = None
        self.at_work: Callable[[str], Sequence[Mapping[str, Any]]] = lambda context: ()
        """The background runs and subagents of a context that have not ended."""

    async def of(self, held: Context, sender: Principal, settings: Settings) -> tuple[Standing, tuple[Message, ...]]:
        """What a request of this context in this sender's name begins with, and what closes it."""
        tools = self._box.definitions(sender, settings)
        data = self._data_of(sender, settings, tools)
        prompt = prompt_of_settings(settings)
        if sender not in self._standing and len(self._standing) >= MOST_STANDING:
            self._standing.clear()
        own = self._standing.setdefault(sender, StandingPrompt())
        rendered, changed = own.render(prompt, data)
        if changed is not None:
            self._events.emit("prompt.changed", held.id, None, segment=changed.segment, at=changed.at)
            self._told_failures(held, "standing", rendered.failures)
        keys = await self._memories.of(held).prompt_keys()
        volatile = self._volatile_of(prompt, data, held.state, tuple(keys), self._work_of(held))
        self._told_failures(held, "volatile", volatile.failures)
        return self._standing_of(sender, rendered.text, tools), closing_block(volatile.text)

    def _data_of(self, sender: Principal, settings: Settings, tools: tuple[ToolSchema, ...]) -> StandingData:
        """The same object while its inputs are the same ones, so that what is rendered of it need not be made again."""
        inputs = (settings, tools, self._skills.catalogue)
        found = self._data.get(sender)
        if found is None or any(a is not b for a, b in zip(found[0], inputs, strict=True)):
            made = standing_data(
                settings,
                tools=tool_lines(self._box, sender, settings),
                catalogue=self._skills.catalogue,
                principal=(sender.id, sender.role),
            )
            if len(self._data) >= MOST_STANDING:
                self._data.clear()
            found = self._data[sender] = (inputs, made)
        return found[1]

    def _work_of(self, held: Context) -> tuple[Mapping[str, Any], ...]:
        """As the prompt tells it: by id, so that the model can ask for it, without what changes by the second."""
        found = self.at_work(held.id)
        return tuple({"id": one.get("run") or one["subagent"], "what": one.get("tool", "subagent")} for one in found)

    def _volatile_of(
        self, prompt: Prompt, data: StandingData, state: ContextState, keys: tuple[str, ...],
        runs: tuple[Mapping[str, Any], ...],
    ) -> Rendered:  # fmt: skip
        """The same text while it would read the same, which within a second it does for all contexts without a plan."""
        now = self._clock() // 1000 * 1000
        inputs = (prompt, data, state.plan, keys, now, runs)
        known = self._volatile
        if known is not None and known[0][3:] == inputs[3:] and all(map(is_, known[0][:3], inputs[:3])):
            return known[1]
        made = render_volatile(prompt, data, volatile_data(state, keys, now, runs))
        if not made.failures:
            self._volatile = inputs, made
        return made

    def _standing_of(self, sender: Principal, text: str, tools: tuple[ToolSchema, ...]) -> Standing:
        found = self._made.get(sender)
        if found is None or found.tools is not tools or found.prompt.content != text:
            if len(self._made) >= MOST_STANDING:
                self._made.clear()
            found = self._made[sender] = Standing(Message("system", text), tools, self._box.read_only)
        return found

    def _told_failures(self, held: Context, part: str, failures: tuple[tuple[str, str], ...]) -> None:
        for by, reason in failures:
            self._events.emit("prompt.fallback", held.id, None, part=part, by=by, reason=reason)


def tool_lines(box: ToolBox, sender: Principal, settings: Settings) -> tuple[ToolLine, ...]:
    """What the prompt tells of the tools that a sender may use."""
    return tuple(ToolLine(name, text, wire) for name, text, wire in box.told(sender, settings))


def volatile_data(
    state: ContextState, keys: Sequence[str], now: int, runs: Sequence[Mapping[str, Any]] = ()
) -> VolatileData:
    """What the volatile part reads of a context. `keys`: of the memory; `now` in ms; `runs`: at work beside it."""
    plan = plans.plan_of(state.plan)
    return VolatileData(
        plan=state.plan, plan_text=plans.render(plan) if plan is not None else "", memory_keys=keys, now=now, runs=runs
    )
