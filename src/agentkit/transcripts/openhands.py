"""OpenHands event lists of the V0 form: actions and observations. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentkit.core.contracts.frozen import FrozenDict, FrozenList
from agentkit.core.contracts.types import Block, ImageBlock, Message, TextBlock, ToolCall, Usage, mark
from agentkit.models.usage import UsageReading, read_usage

from .anthropic_shape import assemble
from .conversation import Conversation
from .openai_shape import usage_of
from .parts import as_id, call_of, opaque_message, read_content, read_tools
from .source import Source
from .transcript import Transcript

NAME = "openhands"

_SILENT = frozenset({"null", "change_agent_state", "agent_state_changed", "condensation_request", "loop_recovery"})
_NOT_ARGUMENTS = frozenset({"thought", "image_urls", "blocking", "hidden", "confirmation_state", "impl_source"})


def recognises(value: Any) -> bool:
    """Whether a record is an event: it says what was done or seen."""
    if not isinstance(value, Mapping):
        return False
    if isinstance(value.get("trajectory"), list) and "history" not in value:
        return any(recognises(event) for event in value["trajectory"])
    named = isinstance(value.get("action"), str) or isinstance(value.get("observation"), str)
    return named and ("source" in value or "args" in value or "extras" in value or "cause" in value)


def read(source: Source) -> tuple[Transcript, ...]:
    """The one conversation of an event list."""
    reader = _Reader(source)
    for number, record in source.records():
        inner = record.get("trajectory") if isinstance(record, Mapping) else None
        if isinstance(inner, list):
            reader.about.update({k: v for k, v in record.items() if k != "trajectory"})
            for at, event in enumerate(inner, 1):
                reader.take(event, f"event {at}")
        else:
            reader.take(record, source.place(number))
    return (reader.finish(),)


class _Reader:
    """Takes events in order; what shares one model response is one turn."""

    def __init__(self, source: Source) -> None:
        self.report = source.report
        self.conversation = Conversation(NAME, source.report)
        self.about: dict[str, Any] = {}
        self.beside: list[Any] = []
        self.tools: Any = None
        self.turn: _Turn | None = None
        self.calls: dict[Any, str] = {}
        self.places: dict[Any, list[int]] = {}
        self.metrics: Usage | None = None
        self.replaced: list[int | Message] | None = None
        self.since = 0

    def take(self, event: Any, place: str) -> None:
        if not isinstance(event, Mapping):
            self._flush()
            message = opaque_message(event, self.report, place, f"a {type(event).__name__} in place of an event")
            self.conversation.add(message, place)
            return
        action, observation = event.get("action"), event.get("observation")
        kind = action if isinstance(action, str) else observation if isinstance(observation, str) else None
        if kind is None:
            self._keep(event, place, "unknown record", "neither action nor observation")
        elif kind in _SILENT:
            self._keep(event, place, "side record", f"{kind!r} is not for the model")
        elif isinstance(action, str):
            self._take_action(action, event, place)
        else:
            self._take_observation(kind, event, place)

    def _take_action(self, action: str, event: Mapping[str, Any], place: str) -> None:
        args = event.get("args")
        args = args if isinstance(args, Mapping) else FrozenDict()
        if action == "condensation":
            self._flush()
            self._condense(args, event, place)
        elif action == "system":
            self._flush()
            self.tools = args.get("tools", self.tools)
            self._place(event, self.conversation.add(Message("system", *_content(args), meta=_meta(event)), place))
        elif action == "message" and event.get("source") != "agent":
            self._flush()
            self._place(event, self.conversation.add(Message("user", *_content(args), meta=_meta(event)), place))
        elif event.get("source") not in ("agent", None):
            self._keep(event, place, "side record", f"{action!r}, not made by the agent")
        else:
            self._add_to_turn(action, args, event, place)

    def _add_to_turn(self, action: str, args: Mapping[str, Any], event: Mapping[str, Any], place: str) -> None:
        told = _told(event)
        response = told.get("model_response")
        response = response if isinstance(response, Mapping) else FrozenDict()
        id = response.get("id")
        if self.turn is None or id is None or self.turn.id != id:
            self._flush()
            self.turn = _Turn(id, response, place, event)
            text = _response_text(response)
            if text is None:
                text = args.get("content") if action == "message" else args.get("thought")
            self.turn.text = text if isinstance(text, str) else ""
        else:
            self.report.note("joined", place, "joined with the events before", "one response, several events")
        self.turn.events.append(event)
        if action != "message" or told:
            self.turn.calls.append(_call(action, args, told, response))
            self.turn.call_events.append(event.get("id"))

    def _take_observation(self, kind: str, event: Mapping[str, Any], place: str) -> None:
        cause, told = event.get("cause"), _told(event)
        self._flush()
        known = self.calls.get(_key(cause))
        id = as_id(told.get("tool_call_id")) or known or ""
        content = read_content(event.get("content"), "openai", self.report, place)
        if known is None and not id and (kind == "recall" or event.get("source") not in ("agent", None)):
            if not content:
                self._keep(event, place, "side record", f"{kind!r} without text for the model")
                return
            message = Message("user", content, meta={**_meta(event), "injected": True})
            self._place(event, self.conversation.add(message, place))
            return
        message = Message(
            "tool", content, None, id or None, is_error=kind in ("error", "user_rejected"), meta=_meta(event)
        )
        self._place(event, self.conversation.add(message, place, pairs=bool(id) or cause is not None))

    def _flush(self) -> None:
        """Ends the turn that is open, if there is one."""
        turn, self.turn = self.turn, None
        if turn is None:
            return
        meta = {"id": turn.id, "model": turn.response.get("model"), "usage": turn.response.get("usage")}
        sealed: FrozenDict[str, Any] = FrozenDict(
            {
                **{k: v for k, v in meta.items() if v is not None},
                **_meta(turn.events[0]),
                "source": FrozenList([_rest(event) for event in turn.events]),
            }
        )
        parts: list[str | Block | ToolCall] = [turn.text] if turn.text else []
        index = self.conversation.add(assemble("assistant", [*parts, *turn.calls], sealed), turn.place)
        made = self.conversation.history[index].tool_calls
        for event_id, call in zip(turn.call_events, made, strict=True):
            self.calls[_key(event_id)] = call.id
        for event in turn.events:
            self._place(event, index)
        reading = usage_of(turn.response.get("usage"), turn.response.get("model"))
        self.conversation.respond(
            index,
            self._with_metrics(reading, turn.events[-1]),
            model=turn.response.get("model"),
            time=turn.events[0].get("timestamp"),
            id=turn.id,
            place=turn.place,
        )

    def _with_metrics(self, reading: UsageReading | None, event: Mapping[str, Any]) -> UsageReading | None:
        """Adds the cost of a response, which events tell as a running total; its tokens too if nothing else does."""
        metrics = event.get("llm_metrics")
        if not isinstance(metrics, Mapping):
            return reading
        tokens = metrics.get("accumulated_token_usage")
        tokens = tokens if isinstance(tokens, Mapping) else {}
        figures = {
            "prompt_tokens": tokens.get("prompt_tokens"),
            "completion_tokens": tokens.get("completion_tokens"),
            "cache_read_input_tokens": tokens.get("cache_read_tokens"),
            "cache_creation_input_tokens": tokens.get("cache_write_tokens"),
        }
        now = read_usage(figures, "litellm")
        cost = read_usage({"cost": metrics.get("accumulated_cost")}, "openrouter")
        total = replace(now.usage, cost_usd=cost.usage.cost_usd)
        before, self.metrics = self.metrics or Usage(), total
        step = Usage(
            max(total.input_tokens - before.input_tokens, 0),
            max(total.output_tokens - before.output_tokens, 0),
            max(total.cost_usd - before.cost_usd, 0.0),
            max(total.cache_read_tokens - before.cache_read_tokens, 0),
            max(total.cache_write_tokens - before.cache_write_tokens, 0),
        )
        if reading is None:
            return replace(now, usage=step, anchor=step if step.prompt_tokens else None)
        return replace(reading, usage=replace(reading.usage, cost_usd=step.cost_usd))

    def _condense(self, args: Mapping[str, Any], event: Mapping[str, Any], place: str) -> None:
        """A condensation: named events leave the context, and a summary stands at an offset among the rest."""
        length = len(self.conversation.history)
        context: list[int | Message] = [*(self.replaced or ()), *range(self.since, length)]
        forgotten = self._forgotten(args)
        kept = [entry for entry in context if not (isinstance(entry, int) and entry in forgotten)]
        text, offset = args.get("summary"), args.get("summary_offset")
        covers = len(context) - len(kept)
        summary = mark(
            Message("user", text if isinstance(text, str) else "", meta=_meta(event)), "summary", covers=covers
        )
        index = self.conversation.add(summary, place, in_context=bool(summary.content))
        if summary.content:
            at = offset if type(offset) is int and 0 <= offset <= len(kept) else len(kept)
            kept.insert(at, index)
        self.conversation.compact(index, "condensation", kept=[i for i in kept if isinstance(i, int) and i != index])
        self.replaced, self.since = kept, index + 1
        self.report.note("compaction", place, f"{covers} messages left the context", "a recorded condensation")

    def _forgotten(self, args: Mapping[str, Any]) -> set[int]:
        named = args.get("forgotten_event_ids")
        ids: list[Any] = list(named) if isinstance(named, list) else []
        start, end = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
        if type(start) is int and type(end) is int:
            ids += [i for i in self.places if type(i) is int and start <= i <= end]
        return {index for i in ids for index in self.places.get(_key(i), ())}

    def _place(self, event: Mapping[str, Any], index: int) -> None:
        self.places.setdefault(_key(event.get("id")), []).append(index)

    def _keep(self, event: Mapping[str, Any], place: str, kind: str, reason: str) -> None:
        self.report.note(kind, place, "kept in meta", reason)
        self.beside.append(event)

    def finish(self) -> Transcript:
        self._flush()
        context: list[Message] | None = None
        if self.replaced is not None:
            history = self.conversation.history
            entries: list[int | Message] = [*self.replaced, *range(self.since, len(history))]
            context = [history[e] if isinstance(e, int) else e for e in entries]
            lead = next((i for i, m in enumerate(context) if m.role != "system"), len(context))
            context = context[lead:]
        meta = {**self.about, "records": self.beside or None}
        return self.conversation.finish(tools=read_tools(self.tools), meta=meta, context=context)


class _Turn:
    """One response of the model, in the making."""

    def __init__(self, id: Any, response: Mapping[str, Any], place: str, first: Mapping[str, Any]) -> None:
        self.id, self.response, self.place = id, response, place
        self.text = ""
        self.calls: list[ToolCall] = []
        self.call_events: list[Any] = []
        self.events: list[Mapping[str, Any]] = []


def _key(id: Any) -> Any:
    """An event id as a dict key, whatever the file has there."""
    return id if isinstance(id, (int, str)) else as_id(id)


def _told(event: Mapping[str, Any]) -> Mapping[str, Any]:
    found = event.get("tool_call_metadata")
    return found if isinstance(found, Mapping) else FrozenDict()


def _meta(event: Mapping[str, Any]) -> dict[str, Any]:
    time = event.get("timestamp")
    return {**({"time": time} if time is not None else {}), "source": _rest(event)}


def _rest(event: Mapping[str, Any]) -> FrozenDict[str, Any]:
    """What the event says beside its content; the copy of the whole response that it carries is not repeated."""
    rest = {k: v for k, v in event.items() if k not in ("content", "timestamp", "tool_call_metadata")}
    told = {k: v for k, v in _told(event).items() if k != "model_response"}
    return FrozenDict({**rest, **({"tool_call_metadata": FrozenDict(told)} if told else {})})


def _content(args: Mapping[str, Any]) -> tuple[str | list[Block]]:
    text, images = args.get("content"), args.get("image_urls")
    text = text if isinstance(text, str) else as_id(text)
    links = [ImageBlock(url) for url in images if isinstance(url, str)] if isinstance(images, list) else []
    return ([TextBlock(text), *links],) if links else (text,)


def _response_message(response: Mapping[str, Any]) -> Mapping[str, Any] | None:
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    return message if isinstance(message, Mapping) else None


def _response_text(response: Mapping[str, Any]) -> str | None:
    message = _response_message(response)
    content = message.get("content") if message is not None else None
    if isinstance(content, list):
        return "".join([p["text"] for p in content if isinstance(p, Mapping) and isinstance(p.get("text"), str)])
    return content if isinstance(content, str) else None if message is None else ""


def _call(action: str, args: Mapping[str, Any], told: Mapping[str, Any], response: Mapping[str, Any]) -> ToolCall:
    id, name = told.get("tool_call_id"), told.get("function_name")
    message = _response_message(response)
    entries = message.get("tool_calls") if message is not None else None
    for entry in entries if isinstance(entries, list) else ():
        function = entry.get("function") if isinstance(entry, Mapping) else None
        if id is not None and isinstance(function, Mapping) and entry.get("id") == id:
            return call_of(id, name or function.get("name"), function.get("arguments"))
    given: FrozenDict[str, Any] = FrozenDict({k: v for k, v in args.items() if k not in _NOT_ARGUMENTS})
    return call_of(id, name or action, given)
