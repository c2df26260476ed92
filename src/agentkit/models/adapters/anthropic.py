"""`AnthropicLLM`: Anthropic's Messages API. Calls the client it is given: Anthropic's own, or one for Bedrock, Google
Cloud or Foundry that has the same methods.

What does not change from one request to the next (system text, tools, the known head of the transcript) is made once
and sent as the same bytes; cache marks are put on shallow copies.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentkit.core.contracts.errors import PermanentError, TransientError
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.offers import ToolSchema
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.validity import ANTHROPIC, Repaired, Rules
from agentkit.models.catalog.abilities import abilities
from agentkit.models.wire import anthropic as wire

from .answers import Answer, decoded, without
from .anthropic_marks import EPHEMERAL, put_marks, with_mark
from .anthropic_stream import Received
from .base import (
    TIMEOUT,
    Choice,
    Settings,
    ToolForms,
    Views,
    choice_of,
    form_of,
    leading_system,
    model_of,
    parameters_of,
    planned_marks,
    raw_events,
    settings_of,
    without_retries,
)
from .failures import provider_errors

PROVIDER = "anthropic"
MAX_TOKENS = 4_096
"""Tokens of the longest answer where neither request nor adapter names another; the API has no default of its own."""

FINISHED: Mapping[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
"""The library's words for why an answer ended; any other reason goes as it came: `pause_turn`, `refusal`."""

NO_FIELD = frozenset(
    {"seed", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs", "logit_bias", "verbosity", "n"}
)
"""Options of other providers that this API has no field for."""


class AnthropicLLM:
    """A model behind `/v1/messages`.

    `client`: an `anthropic.AsyncAnthropic` or one like it; its own retries are turned off. `model`: asked where a
    request names none. `timeout`: seconds for one request. `rules`: what is accepted as a transcript; for models that
    take system text among the messages, `replace(ANTHROPIC, late_system=True)`.

    Options of a request are fields of the API, with these names of our own: `effort` (`output_config.effort`),
    `parallel_tool_calls`, `stop` (`stop_sequences`), `tools` (the provider's own, behind the request's), `betas` (sent
    as the header). `cache_key` is not sent: this cache is found by content alone. A parameter that the model refuses,
    or that there is no field for, is left out and named in `meta["dropped"]`.

    Raises the errors of `failures`; a stream that is cut off raises TransientError, and nothing of it is to be kept.
    """

    def __init__(
        self,
        client: Any,
        *,
        model: str | None = None,
        max_tokens: int = MAX_TOKENS,
        timeout: float | None = TIMEOUT,
        rules: Rules = ANTHROPIC,
    ) -> None:
        self.model, self.max_tokens = model, max_tokens
        self._client = without_retries(client, timeout)
        self._views, self._tools = Views(rules), ToolForms(_tool)
        self._system = _System()

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        """The whole answer, in one response."""
        asked = self._ask(request)
        with provider_errors(PROVIDER):
            raw = await self._client.messages.with_raw_response.create(**asked.arguments(stream=False))
            content = raw.read()
            response = decoded(await content if hasattr(content, "__await__") else content, PROVIDER)
        if not isinstance(response.get("content"), list):
            raise PermanentError(f"{PROVIDER}: the answer has no content; is the base URL that of the interface?")
        return _answer(asked, Received.of(response, _request_id(raw))).result()

    async def stream(self, request: ChatRequest, /) -> AsyncGenerator[Delta, None]:
        """The answer in pieces; the last one has calls, blocks, usage and finish reason. Closing the stream closes the
        connection."""
        asked = self._ask(request)
        received = Received()
        with provider_errors(PROVIDER):
            events = await self._client.messages.create(**asked.arguments(stream=True))
            received.request_id = _request_id(getattr(events, "response", None))
            async with aclosing(raw_events(events)) as pieces:
                async for event in pieces:
                    text = received.take(event.data)
                    if text:
                        yield Delta(text)
        if not received.is_whole:
            raise TransientError(f"{PROVIDER}: the stream ended in the middle of the answer")
        yield _answer(asked, received).delta()

    async def count_exact(self, request: ChatRequest, /) -> int:
        """Tokens of the request by the provider's own count, which costs a request but no tokens and is, in its own
        words, an estimate: thinking of earlier turns is not counted."""
        asked = self._ask(request)
        arguments = asked.arguments(stream=None)
        with provider_errors(PROVIDER):
            counted = await self._client.messages.count_tokens(**arguments)
        return int(counted.input_tokens)

    def body(self, request: ChatRequest) -> dict[str, Any]:
        """What would be sent, less `stream`; for a look at it, and for counting. Not to be changed."""
        asked = self._ask(request)
        return {"model": asked.model, **asked.body, **asked.more}

    # The request

    def _ask(self, request: ChatRequest) -> _Asked:
        model = model_of(request, self.model)
        known = abilities(model)
        view = self._views.of(request)
        settings = without(settings_of(request, model), NO_FIELD)
        if known.prefill is False and _is_prefilled(view.messages[-1]):
            raise PermanentError(f"{PROVIDER}: {model} takes no start of its answer; the request must end with a user")
        more, headers = _fields(dict(settings.values))
        native = more.pop("tools", [])
        body: dict[str, Any] = {"max_tokens": request.max_tokens or self.max_tokens}
        tools = self._tools.of(request.tools)
        if tools or native:
            body["tools"] = [*tools, *native] if native else tools
        lead = leading_system(view.messages)
        body["system"] = self._system.of(view.messages[:lead])
        turns = wire.render_turns(view.messages[lead:])
        body["messages"] = _closed_start(turns.wire)
        plan = planned_marks(request)
        if plan is not None:
            put_marks(body, plan, view, lead, turns.places)
        elif request.cache_hint and body["system"]:
            body["system"] = with_mark(body["system"], len(body["system"]) - 1, EPHEMERAL)
        if not body["system"]:
            del body["system"]
        choice = choice_of(request.tool_choice) if "tools" in body else None
        dropped = []
        if choice is not None and choice.kind in ("any", "tool") and known.forced_tools is False:
            choice = None
            dropped.append("tool_choice")
        parallel = more.pop("parallel_tool_calls", None)
        if choice is not None or (parallel is False and "tools" in body):
            more["tool_choice"] = _choice(choice or Choice("auto"), parallel)
        form = form_of(request.response_format)
        if form is not None and form.schema is None:
            dropped.append("response_format")
        elif form is not None:
            shape = {"type": "json_schema", "schema": closed_schema(form.schema)}
            more["output_config"] = {**more.get("output_config", {}), "format": shape}
        settings = Settings(settings.values, tuple(sorted((*settings.dropped, *dropped))))
        return _Asked(model, body, more, headers, settings, view, form is not None)


@dataclass(frozen=True)
class _Asked:
    """A request as it goes out, and what of it the answer has to know. `body`: what the client has arguments for;
    `more`: fields that go past them, since a client refuses those that newer models no longer take."""

    model: str
    body: dict[str, Any]
    more: dict[str, Any]
    headers: dict[str, str]
    settings: Settings
    view: Repaired
    structured: bool

    def arguments(self, *, stream: bool | None) -> dict[str, Any]:
        """The client's arguments; `stream` None: for counting, which has neither limit nor sampling."""
        body, more = dict(self.body), self.more
        if stream is None:
            del body["max_tokens"]
            more = {key: value for key, value in more.items() if key in _COUNTED}
        else:
            body["stream"] = stream
        extra = {"extra_body": more} if more else {}
        headers = {"extra_headers": self.headers} if self.headers else {}
        return {"model": self.model, **body, **extra, **headers}


_COUNTED = frozenset({"tool_choice", "thinking", "output_config", "cache_control", "context_management", "mcp_servers"})


class _System:
    """The `system` of the prefix that was sent last, kept for as long as the very same messages are."""

    def __init__(self) -> None:
        self._known: tuple[Message, ...] = ()
        self._blocks: list[dict[str, Any]] = []

    def of(self, messages: tuple[Message, ...]) -> list[dict[str, Any]]:
        """A list that is not to be changed."""
        if len(messages) != len(self._known) or any(a is not b for a, b in zip(messages, self._known, strict=True)):
            self._known, self._blocks = messages, wire.render_system(messages)
        return self._blocks


def _tool(tool: ToolSchema) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": parameters_of(tool)}


class _Fields(NamedTuple):
    values: dict[str, Any]
    headers: dict[str, str]


def _fields(values: dict[str, Any]) -> _Fields:
    """Options under the API's own names, and those that are headers."""
    values.pop("cache_key", None)
    effort = values.pop("effort", None)
    if effort is not None:
        values["output_config"] = {**values.get("output_config", {}), "effort": effort}
    stop = values.pop("stop", None)
    if stop is not None:
        values["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    betas = values.pop("betas", ())
    return _Fields(values, {"anthropic-beta": ",".join(betas)} if betas else {})


def _choice(choice: Choice, parallel: bool | None) -> dict[str, Any]:
    if choice.kind == "native":
        return dict(choice.raw)
    made: dict[str, Any] = {"type": choice.kind}
    if choice.name is not None:
        made["name"] = choice.name
    if parallel is False and choice.kind != "none":
        made["disable_parallel_tool_use"] = True
    return made


def closed_schema(schema: Any) -> Any:
    """A JSON Schema whose objects take no other properties, which this API demands to be said; else unchanged."""
    if isinstance(schema, Mapping):
        made = {key: closed_schema(value) for key, value in schema.items()}
        if schema.get("type") == "object" and "additionalProperties" not in schema:
            made["additionalProperties"] = False
        return made
    return [closed_schema(value) for value in schema] if isinstance(schema, (list, tuple)) else schema


def _closed_start(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, the start of an answer at their end without its trailing blanks, which the API refuses there. The
    same list where there are none; what is changed is copied."""
    last = messages[-1] if messages else None
    if last is None or last["role"] != "assistant":
        return messages
    content = last["content"]
    if isinstance(content, str):
        closed: Any = content.rstrip()
    elif content[-1].get("type") == "text":
        closed = [*content[:-1], {**content[-1], "text": content[-1]["text"].rstrip()}]
    else:
        return messages
    return messages if closed == content else [*messages[:-1], {**last, "content": closed}]


def _is_prefilled(last: Message) -> bool:
    """Whether a request ends with the start of an answer; a paused turn, which goes back as it came, is none."""
    if last.role != "assistant":
        return False
    said = last.meta.get(PROVIDER)
    paused = isinstance(said, Mapping) and said.get("stop_reason") in ("pause_turn", "compaction")
    return not paused and not any(block.get("type") not in _PLAIN for block in wire.render_turn(last)["content"])


_PLAIN = frozenset({"text", "thinking", "redacted_thinking"})


# The answer


def _answer(asked: _Asked, received: Received) -> Answer:
    text, calls, blocks = wire.read_content(received.content)
    reason = received.about.get("stop_reason")
    return Answer(
        text,
        calls,
        blocks,
        finish=FINISHED.get(reason, reason) if isinstance(reason, str) else None,
        reason=reason,
        model=received.about.get("model") or asked.model,
        asked=asked.model,
        usage=received.usage,
        wire=PROVIDER,
        about={**received.about, "usage": received.figures, "request_id": received.request_id},
        provider=PROVIDER,
        settings=asked.settings,
        view=asked.view,
        structured=asked.structured,
    )


def _request_id(response: Any) -> str | None:
    headers = getattr(response, "headers", None)
    return headers.get("request-id") if isinstance(headers, Mapping) else None
