"""`AnthropicLLM`: Anthropic's Messages API. Calls the client it is given: Anthropic's own, or one for Bedrock, Google
Cloud or Foundry that has the same methods.

What does not change from one request to the next (system text, tools, the known head of the transcript) is made once
and sent as the same bytes; cache marks are put on shallow copies.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from agentkit.core.contracts.errors import PermanentError, TransientError
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.validity import ANTHROPIC, Repaired, Rules
from agentkit.models.catalog.abilities import abilities_of
from agentkit.models.wire import anthropic as wire

from .answers import Answer, decoded, without
from .anthropic_marks import EPHEMERAL, put_marks, with_mark
from .anthropic_request import (
    ADAPTIVE,
    BINDING_BETA,
    NO_FIELD,
    PROVIDER,
    Request,
    System,
    closed_schema,
    closed_start,
    fields_of,
    is_prefilled,
    set_choice,
    tool_form,
)
from .anthropic_stream import Received
from .base import (
    TIMEOUT,
    Settings,
    ToolForms,
    Views,
    choice_of,
    form_of,
    leading_system,
    model_of,
    planned_marks,
    raw_events,
    settings_of,
    without_retries,
)
from .failures import provider_errors

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

BOUND = "bound to a different conversation"
"""What the API says of a thinking block in front of which something has changed since. Models from Claude Fable 5.1 on
check that: for accounts created after August 2026 always, for older ones where a request asks for it."""


class AnthropicLLM:
    """A model behind `/v1/messages`.

    `client`: an `anthropic.AsyncAnthropic` or one like it; its own retries are turned off. `model`: asked where a
    request names none. `timeout`: seconds for one request. `rules`: what is accepted as a transcript; for models that
    take system text among the messages, `replace(ANTHROPIC, late_system=True)`.

    Options of a request are fields of the API, with these names of our own: `effort` (`output_config.effort`),
    `parallel_tool_calls`, `stop` (`stop_sequences`), `tools` (the provider's own, behind the request's), `betas` (sent
    as the header). `cache_key` is not sent: this cache is found by content alone. A parameter that the model refuses,
    or that there is no field for, is left out and named in `meta["dropped"]`.

    Thinking goes back as it came. Where the model refuses it, since a compaction, a masked result or a closing block
    that changes every turn has altered what stood in front, the request is sent again and the provider asked to leave
    out what it cannot use, from then on always; it says what it left out in
    `meta["anthropic"]["input_transformations"]`.

    Raises the errors of `failures`; a stream that is cut off raises TransientError, and nothing of it is to be kept.
    """

    repairs = True
    """Any transcript may be handed over: what is sent of it is valid for the provider."""

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
        self._views, self._tools = Views(rules), ToolForms(tool_form, rules.tool_names)
        self._system = System()
        self._unbound: set[str] = set()
        """Models that were asked to leave out thinking that they cannot use."""

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        """The whole answer, in one response."""
        asked = self._ask(request)
        try:
            return await self._answered(asked)
        except PermanentError as error:
            if not self._unbinds(asked, error):
                raise
        return await self._answered(self._ask(request))

    async def _answered(self, asked: Request) -> LLMResult:
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
            try:
                events = await self._client.messages.create(**asked.arguments(stream=True))
            except Exception as error:
                if not self._unbinds(asked, error):
                    raise
                asked = self._ask(request)
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

    def _unbinds(self, asked: Request, error: Exception) -> bool:
        """Whether a refusal is about thinking whose conversation has changed, and asking again may help."""
        kind = asked.more.get("thinking", ADAPTIVE).get("type")
        if BOUND not in str(error) or asked.model in self._unbound or kind not in ("adaptive", "enabled"):
            return False
        self._unbound.add(asked.model)
        return True

    # The request

    def _ask(self, request: ChatRequest) -> Request:
        model = model_of(request, self.model)
        view = self._views.of(request)
        known, settings = abilities_of(model), without(settings_of(request, model), NO_FIELD)
        if known.prefill is False and is_prefilled(view.messages[-1]):
            raise PermanentError(f"{PROVIDER}: {model} takes no start of its answer; the request must end with a user")
        more, betas = fields_of(dict(settings.values))
        if model in self._unbound:
            binding = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
            more["thinking"] = {**more.get("thinking", ADAPTIVE), **binding}
            betas = list(dict.fromkeys([*betas, BINDING_BETA]))
        offered = self._tools.of(request.tools)
        body = self._body(request, view, [*offered.forms, *more.pop("tools", ())])
        choice = choice_of(request.tool_choice, self._views.rules.tool_names)
        refused = set_choice(more, choice, known.forced_tools) if "tools" in body else ()
        form = form_of(request.response_format)
        if form is not None and form.schema is None:
            refused = (*refused, "response_format")  # there is no form for just any JSON
        elif form is not None:
            shape = {"type": "json_schema", "schema": closed_schema(form.schema)}
            more["output_config"] = {**more.get("output_config", {}), "format": shape}
        settings = Settings(settings.values, tuple(sorted((*settings.dropped, *refused))))
        headers = {"anthropic-beta": ",".join(betas)} if betas else {}
        return Request(model, body, settings, view, form is not None, offered.names, more, headers)

    def _body(self, request: ChatRequest, view: Repaired, tools: list[dict[str, Any]]) -> dict[str, Any]:
        """Tools, system text and messages, with the marks of the plan."""
        limit = self.max_tokens if request.max_tokens is None else request.max_tokens  # 0 fills the cache alone
        body: dict[str, Any] = {"max_tokens": limit}
        if tools:
            body["tools"] = tools
        lead = leading_system(view.messages)
        system = self._system.of(view.messages[:lead])
        if system:
            body["system"] = system
        turns = wire.render_turns(view.messages[lead:])
        body["messages"] = closed_start(turns.wire)
        plan = planned_marks(request)
        if plan is not None:
            put_marks(body, plan, view, lead, turns.places)
        elif request.cache_hint and system:
            body["system"] = with_mark(system, len(system) - 1, EPHEMERAL)
        return body


# The answer


def _answer(asked: Request, received: Received) -> Answer:
    text, calls, blocks = wire.read_content(received.content)
    reason = received.about.get("stop_reason")
    return Answer(
        text,
        calls,
        blocks,
        finish=FINISHED.get(reason, reason) if isinstance(reason, str) else None,
        reason=reason,
        model=received.about.get("model") or asked.model,
        asked=asked,
        usage=received.usage,
        wire=PROVIDER,
        about={**received.about, "usage": received.figures, "request_id": received.request_id},
        provider=PROVIDER,
    )


def _request_id(response: Any) -> str | None:
    headers = getattr(response, "headers", None)
    return headers.get("request-id") if isinstance(headers, Mapping) else None
