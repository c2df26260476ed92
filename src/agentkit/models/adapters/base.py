"""What the adapters of providers share: the view that is sent, the stable forms of its parts, settings, streams.

Touches only its arguments. No client library is imported: an adapter calls the client object that it was given.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from operator import is_
from typing import Any, NamedTuple

from agentkit.core.contracts.errors import TransientError
from agentkit.core.contracts.frozen import thaw
from agentkit.core.contracts.jsontext import canonical_json, parse_object
from agentkit.core.contracts.messages import Message, derived
from agentkit.core.contracts.offers import Breakpoint, ToolSchema
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.validity import GrowingView, Repaired, Rules, Spelling, require_request
from agentkit.models.catalog.abilities import abilities_of

from .sendable import sendable

VIEWS = 32
"""Conversations whose views an adapter keeps at hand; any other is repaired as a whole, which costs time alone."""

TIMEOUT = 600.0
"""Seconds for one request, as the clients of the providers have it by default."""


class Views:
    """The views of the transcripts that one adapter sends, each carried on from the request before.

    A request continues the conversation whose messages, by identity, it begins with. `keep` bounds how many
    conversations are remembered, those used last.
    """

    def __init__(self, rules: Rules, *, keep: int = VIEWS) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}")
        self.rules = rules
        self._keep = keep
        self._known: OrderedDict[int, GrowingView] = OrderedDict()
        self._next = 0

    def of(self, request: ChatRequest) -> Repaired:
        """The view that the rules accept, with its changes and `places`. EmptyRequestError for nothing to answer."""
        given, prefix = request.messages, request.prefix_length
        # The longest head wins: a fork and its origin share the shorter one. Of equals the latest used.
        key = max(
            (key for key, view in self._known.items() if view.known and view.continues(given)),
            key=lambda key: self._known[key].known,
            default=-1,
        )
        if key < 0:
            key = self._next
            self._next += 1
            self._known[key] = GrowingView(self.rules)
        self._known.move_to_end(key)
        found = self._known[key].repaired(given, prefix=prefix)
        if not self._known[key].known:
            del self._known[key]  # nothing was settled, so nothing could be recognised
        elif len(self._known) > self._keep:
            self._known.popitem(last=False)
        require_request(found.messages, given)
        return found


def leading_system(view: Sequence[Message]) -> int:
    """How many messages at the start of a view are system or developer text."""
    return next((at for at, m in enumerate(view) if m.role not in ("system", "developer")), len(view))


def model_of(request: ChatRequest, default: str | None) -> str:
    """The model that is asked: the request's own, else the adapter's. ValueError where neither names one."""
    model = request.model or default
    if not model:
        raise ValueError("no model: name one in ChatRequest.model or give the adapter `model=`")
    return model


def planned_marks(request: ChatRequest) -> tuple[Breakpoint, ...] | None:
    """The breakpoint plan of a request, by position; None where `cache_hint` is none (absent, or merely truthy).

    ValueError for a position behind the last message.
    """
    hint = request.cache_hint
    if not isinstance(hint, tuple) or not hint or not all(isinstance(mark, Breakpoint) for mark in hint):
        return None
    for mark in hint:
        if mark.position > len(request.messages):
            raise ValueError(
                f"ChatRequest.cache_hint has a mark at position {mark.position}, but there are only "
                f"{len(request.messages)} messages"
            )
    return tuple(sorted(hint, key=lambda mark: mark.position))


# Tools


def parameters_of(tool: ToolSchema) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments, keys in canonical order; computed once per tool, not to be changed."""
    return derived(tool, "_parameters", _parameters)


def _parameters(tool: ToolSchema) -> dict[str, Any]:
    return parse_object(canonical_json(tool.parameters)) or {"type": "object", "properties": {}}


class Offered(NamedTuple):
    """Tools as they are sent. `forms`: not to be changed; `names`: the tools' own names by those that are sent, of the
    tools alone whose name the provider does not take."""

    forms: list[dict[str, Any]]
    names: Mapping[str, str]


_NOTHING = Offered([], {})


class ToolForms:
    """The wire form of a set of tools, sorted by name and rendered once for as long as the same tools are sent.

    A name that the provider does not take is spelled by its rules, here as in the calls of the transcript.
    """

    def __init__(self, render: Callable[[ToolSchema], dict[str, Any]], names: Spelling) -> None:
        self._render, self._names = render, names
        self._known: tuple[ToolSchema, ...] = ()
        self._offered = _NOTHING

    def of(self, tools: tuple[ToolSchema, ...] | None) -> Offered:
        """What is sent of the tools. ValueError for a tool without a name, and for two that are sent under one."""
        if not tools:
            return _NOTHING
        if tools is not self._known and (len(tools) != len(self._known) or not all(map(is_, tools, self._known))):
            self._offered, self._known = self._made(tools), tools
        return self._offered

    def _made(self, tools: Sequence[ToolSchema]) -> Offered:
        by_name: dict[str, ToolSchema] = {}
        for tool in tools:
            if not tool.name:
                raise ValueError("a tool has no name; a model could not call it")
            name = self._names.fit(tool.name)
            other = by_name.get(name)
            if other is not None and other.name == tool.name:
                raise ValueError(f"two tools are named {tool.name!r}; a model could not tell them apart")
            if other is not None:
                raise ValueError(
                    f"the tools {other.name!r} and {tool.name!r} would both be sent as {name!r}, since the provider "
                    "takes neither name as it is; rename one of them"
                )
            by_name[name] = tool
        forms = []
        for name, tool in sorted(by_name.items()):
            sent = tool if tool.name == name else replace(tool, name=name)
            forms.append(sendable(self._render(sent), f"the tool {tool.name!r}"))
        return Offered(forms, {name: tool.name for name, tool in by_name.items() if tool.name != name})


class Choice(NamedTuple):
    """Which tools may be called. `kind`: auto, any, none, tool (that of `name`), or native: `raw` as it was given."""

    kind: str
    name: str | None = None
    raw: Any = None


def choice_of(given: Any, names: Spelling) -> Choice | None:
    """A request's `tool_choice`: None, a word (auto, any or required, none), or a mapping in a provider's own form.

    A mapping that names one tool, in Anthropic's, OpenAI's or the plain shape `{"name": ...}`, is of kind `tool`, the
    name as it is sent. ValueError for another word, TypeError for anything else.
    """
    if given is None:
        return None
    if isinstance(given, str):
        kind = _CHOICES.get(given)
        if kind is None:
            raise ValueError(f"tool_choice must be auto, any, required, none or {{'name': tool}}, not {given!r}")
        return Choice(kind)
    if not isinstance(given, Mapping):
        raise TypeError(f"tool_choice must be a str or a mapping, not {type(given).__name__}")
    kind, inner = given.get("type"), given.get("function")
    name = inner.get("name") if isinstance(inner, Mapping) else given.get("name")
    if isinstance(name, str) and kind in (None, "tool", "function") and set(given) <= {"type", "name", "function"}:
        return Choice("tool", names.fit(name))
    if isinstance(kind, str) and kind in _CHOICES and len(given) == 1:
        return Choice(_CHOICES[kind])
    return Choice("native", raw=sendable(thaw(given), "tool_choice"))


_CHOICES = {"auto": "auto", "any": "any", "required": "any", "none": "none"}


class Form(NamedTuple):
    """The form that an answer must have. `schema` None: any JSON object."""

    name: str
    schema: dict[str, Any] | None
    strict: bool | None = None


def form_of(given: Any) -> Form | None:
    """A request's `response_format`: None, a JSON Schema, a class with `model_json_schema`, or a mapping in a
    provider's own form (`{"type": "json_schema", ...}`, `{"type": "json_object"}`). TypeError for anything else."""
    if given is None:
        return None
    describe = getattr(given, "model_json_schema", None)
    if callable(describe):
        return Form(_name_of(getattr(given, "__name__", None)), sendable(describe(), "response_format"))
    if not isinstance(given, Mapping):
        raise TypeError(
            f"response_format must be a JSON Schema, a class with model_json_schema or a mapping, not "
            f"{type(given).__name__}"
        )
    kind = given.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return Form("answer", None)
    if kind != "json_schema":
        return Form(_name_of(given.get("title")), sendable(thaw(given), "response_format"))
    inner = given.get("json_schema")
    inner = inner if isinstance(inner, Mapping) else given
    schema, strict = inner.get("schema"), inner.get("strict")
    if not isinstance(schema, Mapping):
        raise TypeError("a response_format of type json_schema needs its JSON Schema under `schema`")
    plain_schema = sendable(thaw(schema), "response_format")
    return Form(_name_of(inner.get("name")), plain_schema, strict if isinstance(strict, bool) else None)


def _name_of(name: Any) -> str:
    """A name that every provider takes for a form: letters, digits, underscore and dash, at most 64."""
    text = name if isinstance(name, str) else ""
    return "".join([c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in text])[:64] or "answer"


# Settings


class Settings(NamedTuple):
    """What a request asks for beside messages and tools, in plain values. `values`: temperature and options that the
    model takes; `dropped`: the names of those that it refuses, sorted."""

    values: dict[str, Any]
    dropped: tuple[str, ...]


def settings_of(request: ChatRequest, model: str) -> Settings:
    """Temperature and options of a request, less what the catalogue says that the model refuses. TypeError or
    ValueError for an option that JSON cannot carry.

    `cache_key` is among the values where it is set: adapters send it under the provider's own name, or not at all.
    """
    values: dict[str, Any] = thaw(request.options)
    if request.temperature is not None:
        values.setdefault("temperature", request.temperature)
    dropped = abilities_of(model).refused(values)
    for name in dropped:
        del values[name]
    return Settings({name: sendable(value, name) for name, value in values.items()}, dropped)


def reported(
    provider: str, said: Mapping[str, Any], settings: Settings, view: Repaired, names: Mapping[str, str]
) -> dict[str, Any]:
    """The `meta` of an answer: what the provider said under its name, and what was left out or repaired, if anything.

    `dropped`: names of parameters that the model refuses; `repaired`: (code, index in the request) of each change;
    `renamed`: tools' own names by those that they were sent under, from `names`.
    """
    meta: dict[str, Any] = {provider: {key: value for key, value in said.items() if value is not None}}
    if settings.dropped:
        meta["dropped"] = settings.dropped
    if view.changes:
        meta["repaired"] = tuple([(change.code, change.index) for change in view.changes])
    if names:
        meta["renamed"] = dict(names)
    return meta


# Clients


def without_retries(client: Any, timeout: float | None) -> Any:
    """The client with its own retries turned off and a time limit of `timeout` seconds, where it can be told so."""
    with_options = getattr(client, "with_options", None)
    if with_options is None:
        return client
    return with_options(max_retries=0) if timeout is None else with_options(max_retries=0, timeout=timeout)


class RawEvent(NamedTuple):
    """One event of a stream as it was sent: its name, if it has one, and its JSON data, keys in their order."""

    name: str | None
    data: dict[str, Any]


async def raw_events(stream: Any) -> AsyncGenerator[RawEvent, None]:
    """The events of a client's stream. The HTTP response is closed when they end, fail or are closed early.

    A client's own event objects forget the order of keys and may drop what they do not know, so the events are read in
    front of them; a stream without `_iter_events` gives objects with `to_dict` or `model_dump`. TransientError for data
    that is no JSON object: the line was cut.
    """
    sent = getattr(stream, "_iter_events", None)
    try:
        if sent is None:
            async for event in stream:
                data = plain(event)
                yield RawEvent(data.get("type"), data)
            return
        async for event in sent():
            if not event.data or event.data.startswith("[DONE]"):
                continue
            sent_data = parse_object(event.data)
            if sent_data is None:
                raise TransientError("an event of the stream is no JSON object: the answer was cut off")
            yield RawEvent(event.event, sent_data)
    finally:
        await closed(stream)


async def closed(stream: Any) -> None:
    """Closes a client's stream or response; one that cannot be closed is left alone."""
    close = getattr(stream, "close", None) or getattr(stream, "aclose", None)
    if close is not None:
        made = close()
        if hasattr(made, "__await__"):
            await made


def plain(value: Any) -> dict[str, Any]:
    """A client's object as the JSON data that it was made of."""
    if isinstance(value, Mapping):
        return dict(value)
    for name in ("to_dict", "model_dump"):
        dump = getattr(value, name, None)
        if callable(dump):
            found: dict[str, Any] = dump(mode="json", exclude_unset=True)
            return found
    raise TypeError(f"cannot read a {type(value).__name__} of the client; a mapping or an object with to_dict is due")
