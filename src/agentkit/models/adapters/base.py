"""What the adapters of providers share: the view that is sent, the stable forms of its parts, settings, streams.

Touches only its arguments. No client library is imported: an adapter calls the client object that it was given.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentkit.core.contracts.errors import EmptyRequestError
from agentkit.core.contracts.jsontext import canonical_json, parse_object
from agentkit.core.contracts.messages import derived
from agentkit.core.contracts.offers import Breakpoint, ToolSchema
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult, assemble_deltas
from agentkit.core.contracts.validity import Repaired, Rules, repair, require_request

VIEWS = 32
"""Conversations whose views an adapter keeps at hand; any other is repaired as a whole, which costs time alone."""

TIMEOUT = 600.0
"""Seconds for one request, as the clients of the providers have it by default."""


class Views:
    """The views of the transcripts that one adapter sends, each carried on from the request before.

    A request continues the conversation whose messages, by identity, it begins with. `keep` bounds how many
    conversations are remembered, the latest used ones.
    """

    def __init__(self, rules: Rules, *, keep: int = VIEWS) -> None:
        self.rules = rules
        self._keep = keep

    def of(self, request: ChatRequest) -> Repaired:
        """The view that the rules accept, with its changes and `places`. EmptyRequestError for nothing to answer."""
        found = repair(request.messages, self.rules, prefix=request.prefix_length)
        require_request(found.messages)
        return found


def leading_system(view: Sequence[Any]) -> int:
    """How many messages at the start of a view are system or developer text."""
    return next((at for at, m in enumerate(view) if m.role not in ("system", "developer")), len(view))


def model_of(request: ChatRequest, default: str | None) -> str:
    """The model that is asked: the request's own, else the adapter's. ValueError where neither names one."""
    model = request.model or default
    if not model:
        raise ValueError("no model: name one in ChatRequest.model or give the adapter `model=`")
    return model


def planned_marks(request: ChatRequest) -> tuple[Breakpoint, ...] | None:
    """The breakpoint plan of a request; None where `cache_hint` is none (absent, or merely truthy).

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
    """The JSON Schema of a tool's arguments, keys in canonical order; computed once per tool."""
    return derived(tool, "_parameters", _parameters)


def _parameters(tool: ToolSchema) -> dict[str, Any]:
    return parse_object(canonical_json(tool.parameters)) or {"type": "object", "properties": {}}


class ToolForms:
    """The wire form of a set of tools, sorted by name and rendered once for as long as the same tools are sent."""

    def __init__(self, render: Callable[[ToolSchema], dict[str, Any]]) -> None:
        self._render = render
        self._known: tuple[ToolSchema, ...] = ()
        self._forms: list[dict[str, Any]] = []

    def of(self, tools: tuple[ToolSchema, ...] | None) -> list[dict[str, Any]]:
        """A list that is not to be changed; empty for no tools."""
        if not tools:
            return []
        if tools is not self._known:
            self._forms = [self._render(tool) for tool in sorted(tools, key=lambda tool: tool.name)]
            self._known = tools
        return self._forms


class Choice(NamedTuple):
    """Which tools may be called. `kind`: auto, any, none, tool (that of `name`), or native (`raw` as it was given)."""

    kind: str
    name: str | None = None
    raw: Any = None


def choice_of(given: Any) -> Choice | None:
    """A request's `tool_choice`: None, a word (auto, any or required, none), or a mapping in a provider's own form.
    TypeError or ValueError for anything else."""
    raise NotImplementedError


class Form(NamedTuple):
    """The form that an answer must have. `schema` None: any JSON object."""

    name: str
    schema: dict[str, Any] | None
    strict: bool | None = None


def form_of(given: Any) -> Form | None:
    """A request's `response_format`: None, a JSON Schema, a class with `model_json_schema`, or a mapping in a
    provider's own form (`{"type": "json_schema", ...}`, `{"type": "json_object"}`). TypeError for anything else."""
    raise NotImplementedError


# Settings


class Settings(NamedTuple):
    """What a request asks for beside messages and tools, in plain values. `values`: temperature and options that the
    model takes; `dropped`: the names of those that it refuses, sorted."""

    values: dict[str, Any]
    dropped: tuple[str, ...]


def settings_of(request: ChatRequest, model: str, provider: str | None = None) -> Settings:
    """Temperature and options of a request, less what the catalogue says that the model refuses."""
    raise NotImplementedError


# Clients


def without_retries(client: Any, timeout: float | None) -> Any:
    """The client with its own retries turned off and a time limit of `timeout` seconds, where it can be told so."""
    with_options = getattr(client, "with_options", None)
    if with_options is None:
        return client
    return with_options(max_retries=0) if timeout is None else with_options(max_retries=0, timeout=timeout)


def raw_events(stream: Any) -> AsyncIterator[tuple[str | None, dict[str, Any]]]:
    """The events of a client's stream as they were sent: (event name, data with its keys in their order).

    Closes the HTTP response when it ends, fails or is closed early.
    """
    raise NotImplementedError


async def collected(deltas: AsyncIterator[Delta]) -> LLMResult:
    """What a stream adds up to; the stream is closed, also when it fails."""
    raise NotImplementedError


def reported(meta: Mapping[str, Any], provider: str, settings: Settings, view: Repaired) -> dict[str, Any]:
    """The `meta` of an answer: what the provider said under its name, and what was left out or repaired, if anything.

    `dropped`: names of parameters; `repaired`: (code, message index) of each change to the transcript.
    """
    raise NotImplementedError


_ = (EmptyRequestError, assemble_deltas)
