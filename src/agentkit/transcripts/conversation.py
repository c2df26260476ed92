"""Assembling one conversation from messages in order: pairing, prefix, context, findings. Touches only its arguments.

Nothing is repaired here: what a provider would refuse stays in the history, is reported, and is mended in the view.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import is_
from typing import Any

from agentkit.core.contracts.blocks import TextBlock
from agentkit.core.contracts.types import Message, ToolCall, ToolSchema, Usage, marked
from agentkit.models.usage import UsageReading
from agentkit.state.context import PrefixContext, WorkingContext

from .report import Reporter
from .transcript import CallLink, Compaction, Response, Transcript

LABEL = 80
"""Characters of a label that is taken from the first thing the user said."""


@dataclass(eq=False, slots=True)
class _Call:
    """A call that was made. `is_named`: its id is the file's own. `then`: the next call with the same id."""

    id: str
    name: str
    place: str
    is_named: bool
    is_answered: bool = False
    then: _Call | None = None


class _OpenCalls:
    """Calls in order, of which the first open one is asked for, of one tool or of any. Answered ones leave when met."""

    def __init__(self) -> None:
        self._all: deque[_Call] = deque()
        self._by_name: dict[str, deque[_Call]] = {}

    def push(self, call: _Call) -> None:
        self._all.append(call)
        self._by_name.setdefault(call.name, deque()).append(call)

    def first(self, name: str | None) -> _Call | None:
        """The first open call of that tool; of any tool if there is none."""
        same = _first(self._by_name.get(name)) if name is not None else None
        return same if same is not None else _first(self._all)


def _first(queue: deque[_Call] | None) -> _Call | None:
    while queue and queue[0].is_answered:
        queue.popleft()
    return queue[0] if queue else None


class Conversation:
    """Collects the messages of one conversation and makes a Transcript of them."""

    def __init__(self, format: str, report: Reporter, *, place: Callable[[int], str] = str) -> None:
        self.format, self.report, self.place = format, report, place
        self.history: list[Message] = []
        self.responses: list[Response] = []
        self._compactions: list[Compaction] = []
        self._outside: set[int] = set()
        self._calls: list[_Call] = []
        self._next_of: dict[str, _Call | None] = {}
        self._last_of: dict[str, _Call] = {}
        self._open: _OpenCalls | None = None
        """All calls in order, gathered when the first result without a usable id comes."""
        self._unnamed = _OpenCalls()

    def add(self, message: Message, place: str, *, in_context: bool = True, pairs: bool = True) -> int:
        """Appends a message, pairs its calls or result, and returns its place in the history.

        `in_context=False`: the agent never sends it (an error made up by the client). `pairs=False`: a result that
        belongs to no call although some are open.
        """
        if message.tool_calls:
            message = self._register(message, place)
        elif message.role == "tool":
            message = self._pair(message, place, pairs)
        elif not message.content and not message.blocks and in_context:
            self.report.repair("turn empty", place, "kept; the view leaves it out", f"{message.role} without content")
        self.history.append(message)
        if not in_context:
            self._outside.add(len(self.history) - 1)
        return len(self.history) - 1

    def respond(
        self,
        index: int | None,
        reading: UsageReading | None = None,
        *,
        model: Any = None,
        time: Any = None,
        id: Any = None,
        place: str = "",
    ) -> None:
        """Notes a model's response; figures that cannot be are reported."""
        flags = reading.flags if reading is not None else ()
        if flags and (bad := ", ".join([flag for flag in flags if flag.startswith("impossible:")])):
            self.report.repair("usage doubtful", place, "counted without the doubtful figures", bad)
        self.responses.append(Response(index, reading, text_or_none(model), iso_time(time), text_or_none(id)))

    def compact(
        self, index: int, trigger: Any = None, before: Any = None, after: Any = None, kept: Iterable[int] = ()
    ) -> None:
        """Notes a recorded compaction whose summary stands at `index`; the context starts with the latest one."""
        entry = Compaction(index, text_or_none(trigger), _count(before), _count(after), tuple(sorted(set(kept))))
        self._compactions.append(entry)

    def name_of(self, call_id: str) -> str | None:
        """The tool that the latest call of that id names."""
        found = self._last_of.get(call_id)
        return found.name if found is not None else None

    def finish(
        self,
        *,
        id: str = "",
        label: str = "",
        tools: Iterable[ToolSchema] = (),
        meta: Mapping[str, Any] | None = None,
        usage: Usage | None = None,
        context: Sequence[Message] | None = None,
        parent: CallLink | None = None,
    ) -> Transcript:
        """The whole conversation. `usage`: the file's own totals, where it has no figures per response.

        `context`: the messages of the context less its prefix, where it is not what compactions make of the history.
        """
        for call in self._calls:
            if not call.is_answered:
                reason = f"no result of {call.name or 'a tool'} ({call.id}) in the file"
                self.report.repair("call unanswered", call.place, "kept; the view answers it with an error", reason)
        prefix, length = split_prefix(self.history)
        tail = self._tail(length) if context is None else context
        return Transcript(
            self.format,
            id,
            label or label_of(self.history),
            WorkingContext(prefix, tail),
            tuple(self.history),
            tuple(self._compactions),
            tuple(tools),
            usage if usage is not None else billed(self.responses),
            tuple(self.responses),
            {k: v for k, v in (meta or {}).items() if v is not None},
            self.report.seal(),
            parent,
        )

    def _tail(self, start: int) -> list[Message]:
        if not self._compactions:
            places: Iterable[int] = range(start, len(self.history))
        else:
            last = self._compactions[-1]
            places = [last.index, *last.kept, *range(last.index + 1, len(self.history))]
        return [self.history[i] for i in places if i not in self._outside]

    def _register(self, message: Message, place: str) -> Message:
        calls: list[ToolCall] = []
        in_turn: set[str] = set()
        for given in message.tool_calls:
            call = given if given.id and given.raw is None else self._named(given, place)
            id = call.id
            entry = _Call(id, call.name, place, call is given)
            last = self._last_of.get(id)
            if last is not None:
                reason = f"{id} names an earlier call too"
                self.report.repair("id repeated", place, "kept; results pair by position", reason)
                last.then = entry
            if last is None or id not in in_turn or self._next_of[id] is None:
                self._next_of[id] = entry  # a result that comes from now on belongs to the later call
            in_turn.add(id)
            self._last_of[id] = entry
            self._calls.append(entry)
            if self._open is not None:
                self._open.push(entry)
            if call is not given:
                self._unnamed.push(entry)
            calls.append(call)
        return message if all(map(is_, calls, message.tool_calls)) else replace(message, tool_calls=tuple(calls))

    def _named(self, call: ToolCall, place: str) -> ToolCall:
        """The call, with an id of its own; what is wrong with it is reported."""
        if call.invalid:
            reason = f"arguments of {call.name or 'a tool'} are no JSON object"
            self.report.repair("arguments invalid", place, "kept as raw text", reason)
        if call.id:
            return call
        named = replace(call, id=self._fresh_id())
        reason = f"the call of {call.name or 'a tool'} has no id"
        self.report.repair("id generated", place, f"named {named.id}", reason)
        return named

    def _fresh_id(self) -> str:
        number = len(self._calls) + 1
        while f"call-{number}" in self._last_of:
            number += 1
        return f"call-{number}"

    def _all_open(self) -> _OpenCalls:
        if self._open is None:
            self._open = _OpenCalls()
            for call in self._calls:
                self._open.push(call)
        return self._open

    def _open_of(self, id: str) -> _Call | None:
        """The first open call of that id in the latest turn that has one."""
        call = self._next_of.get(id)
        while call is not None and call.is_answered:
            call = call.then
        if call is not None:
            self._next_of[id] = call
        return call

    def _pair(self, message: Message, place: str, pairs: bool) -> Message:
        given = message.tool_call_id or ""
        call = self._open_of(given) if pairs and given else None
        if call is None and pairs and given in self._last_of:
            self.report.repair("second result", place, "kept; the view shows one", f"{given} is answered already")
            call = self._last_of[given]
        elif call is None and pairs:
            # A result that names another call than any there is can only answer one whose own id was missing.
            call = (self._unnamed if given else self._all_open()).first(message.name)
            if call is not None:
                reason = f"no call has the id {given}" if given else "the result has no id"
                self.report.repair("id generated", place, f"paired by order with {call.id}", reason)
        if call is None:
            reason = f"no open call has the id {given}" if given else "it names no call, and none is open"
            self.report.repair("result without call", place, "kept; the view leaves it out", reason)
            return message
        call.is_answered = True
        name = message.name if message.name is not None else call.name or None
        if name == message.name and given == call.id:
            return message
        meta = message.meta if given in ("", call.id) else {**message.meta, "tool_call_id": given}
        return replace(message, name=name, tool_call_id=call.id, meta=meta)


def split_prefix(messages: Sequence[Message]) -> tuple[PrefixContext, int]:
    """The prefix that the leading system messages form, and how many they are.

    The first is the system prompt if it is nothing but text; all others are grounding, in order.
    """
    length = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    lead = messages[:length]
    if lead and lead[0].name is None and all(type(b) is TextBlock for b in lead[0].blocks):
        return PrefixContext(lead[0].content, lead[1:]), length
    return PrefixContext("", lead), length


def label_of(messages: Sequence[Message]) -> str:
    """The first line of the first thing that the user said."""
    for message in messages:
        if message.role == "user" and not message.meta.get("injected") and marked(message, "summary") is None:
            line = message.content.strip().split("\n", 1)[0].strip()
            if line:
                return line if len(line) <= LABEL else line[: LABEL - 1] + "…"
    return ""


def billed(responses: Iterable[Response]) -> Usage:
    """All that was billed for the responses, sub-calls to other models included."""
    fresh = output = read = write = long = reasoning = 0
    cost = 0.0
    for response in responses:
        if response.reading is None:
            continue
        for part in (response.reading.usage, *[usage for _, usage in response.reading.other_models]):
            fresh += part.input_tokens
            output += part.output_tokens
            cost += part.cost_usd
            read += part.cache_read_tokens
            write += part.cache_write_tokens
            long += part.cache_write_long_tokens
            reasoning += part.reasoning_tokens
    return Usage(fresh, output, cost, read, write, cache_write_long_tokens=long, reasoning_tokens=reasoning)


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def iso_time(value: Any) -> str | None:
    """A time as ISO 8601: text as it is, numbers as seconds (or milliseconds) since 1970; None for anything else."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    try:
        moment = datetime.fromtimestamp(value / 1000 if abs(value) > 1e11 else value, UTC)
    except (OverflowError, OSError, ValueError):
        return None
    return moment.isoformat().replace("+00:00", "Z")


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
