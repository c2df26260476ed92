"""`OpenAIChatLLM`: OpenAI's chat completions, and every endpoint that speaks them. Calls the client it is given.

Where endpoints differ is data, a `Dialect`. Messages and tools reach the client in `extra_body`: what is handed to it
as an argument it walks through once more, key by key, which takes a hundred times as long as writing the request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from agentkit.core.contracts.errors import TransientError
from agentkit.core.contracts.messages import derived
from agentkit.core.contracts.offers import Breakpoint, ToolSchema
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.validity import OPENAI_CHAT, Repaired, Rules
from agentkit.models.cache.rules import CacheRules
from agentkit.models.wire import openai_chat as wire

from . import openai_marks as marks
from .answers import Answer, Asked, decoded, request_id, without
from .base import (
    TIMEOUT,
    Choice,
    Form,
    Settings,
    ToolForms,
    Views,
    choice_of,
    form_of,
    model_of,
    parameters_of,
    raw_events,
    settings_of,
    without_retries,
)
from .failures import failure_from, provider_errors
from .openai_chat_stream import Streamed


@dataclass(frozen=True)
class Dialect:
    """Where an endpoint departs from OpenAI's.

    `usage`: its wire of `read_usage`; `limit`: the field for the longest answer; `system`: the role of standing text,
    None for what the model is used to; `cache_key`: the field for the key that keeps requests on one server, None
    without one; `thinking`: the field in which a turn's reasoning goes back; `details`: whether `reasoning_details` do;
    `names`: speakers are named; `echo`: what came beside a call goes back with it; `short_ids`: ids of calls are nine
    letters and digits; `stream_usage`: a stream reports usage only where it is asked to; `schemas`: answers can be held
    to a JSON Schema, not just to JSON; `marks`: whose rules of prompt-cache marks hold, None for no marks; `refuses`:
    options that have no field there.
    """

    usage: str = "openai_chat"
    limit: str = "max_tokens"
    system: str | None = "system"
    cache_key: str | None = None
    thinking: str | None = None
    details: bool = False
    names: bool = True
    echo: bool = False
    short_ids: bool = False
    stream_usage: bool = True
    schemas: bool = True
    marks: str | None = None
    refuses: frozenset[str] = frozenset({"thinking", "betas"})


OPENAI = Dialect(limit="max_completion_tokens", system=None, cache_key="prompt_cache_key", marks="openai")

DIALECTS: Mapping[str, Dialect] = {
    "openai": OPENAI,
    "azure": replace(OPENAI, marks=None),
    "deepseek": Dialect("deepseek", thinking="reasoning_content", schemas=False, refuses=frozenset({"betas"})),
    "xai": Dialect("xai", limit="max_completion_tokens", cache_key="prompt_cache_key"),
    "mistral": Dialect(cache_key="prompt_cache_key", names=False, short_ids=True, stream_usage=False),
    "openrouter": Dialect("openrouter", cache_key="prompt_cache_key", details=True, echo=True, marks="openrouter"),
    "groq": Dialect(limit="max_completion_tokens"),
    "vllm": Dialect(thinking="reasoning"),
    "llama.cpp": Dialect("llama.cpp", thinking="reasoning_content"),
    "ollama": Dialect(thinking="reasoning"),
    "compatible": Dialect(echo=True),
}
"""The endpoints that are known, by name; `compatible` for any other. Sources: their API references, November 2026."""

FINISHED: Mapping[str, str] = {"function_call": "tool_calls", "model_length": "length", "max_tokens": "length"}
"""What some endpoints call the reasons `tool_calls` and `length`; any other goes as it came."""

_ABOUT = ("id", "request_id", "system_fingerprint", "service_tier", "provider", "usage", "timings")
"""What of a response is kept in `meta`."""


class OpenAIChatLLM:
    """A model behind `/v1/chat/completions`.

    `client`: an `openai.AsyncOpenAI` or `AsyncAzureOpenAI`; its own retries are turned off. `model`: asked where a
    request names none. `provider`: a name of DIALECTS, ValueError for any other; `dialect` in its place says how the
    endpoint differs. `timeout`: seconds for one request. `strict_tools`: arguments keep to the tools' schemas, which
    then have to be of the strict kind. Options are fields of the API; of our own names, `effort` is `reasoning_effort`,
    `tools` stand behind the request's own, and `cache_key` goes under the endpoint's name.

    Raises the errors of `failures`; a stream that is cut off raises TransientError, and nothing of it is to be kept.
    """

    repairs = True
    """Any transcript may be handed over: what is sent of it is valid for the provider."""

    def __init__(
        self,
        client: Any,
        *,
        model: str | None = None,
        provider: str = "openai",
        dialect: Dialect | None = None,
        timeout: float | None = TIMEOUT,
        strict_tools: bool = False,
        rules: Rules = OPENAI_CHAT,
    ) -> None:
        if dialect is None and provider not in DIALECTS:
            raise ValueError(f"unknown provider {provider!r}; known are {', '.join(DIALECTS)}, or give a dialect")
        self.model, self.provider = model, provider
        self.dialect = DIALECTS[provider] if dialect is None else dialect
        self._client = without_retries(client, timeout)
        self._strict = strict_tools
        self._views, self._tools = Views(rules), ToolForms(self._tool, rules.tool_names)

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        """The whole answer, in one response."""
        asked = self._ask(request, stream=False)
        with provider_errors(self.provider):
            raw = await self._client.chat.completions.with_raw_response.create(
                model=asked.model, messages=[], stream=False, extra_body=asked.body
            )
        return self._result(asked, {**decoded(raw.content, self.provider), "request_id": request_id(raw)})

    async def stream(self, request: ChatRequest, /) -> AsyncGenerator[Delta, None]:
        """The answer in pieces; the last one has calls, blocks, usage and finish reason."""
        asked = self._ask(request, stream=True)
        answer = Streamed(asked.details)
        with provider_errors(self.provider):
            events = await self._client.chat.completions.create(
                model=asked.model, messages=[], stream=True, extra_body=asked.body
            )
            answer.about["request_id"] = request_id(getattr(events, "response", None))
            async with aclosing(raw_events(events)) as pieces:
                async for _, chunk in pieces:
                    text = answer.take(chunk, self.provider)
                    if text:
                        yield Delta(text)
        if answer.finish is None:
            raise TransientError(f"{self.provider}: the stream ended without a finish reason")
        yield self._answer(asked, answer.whole(), answer.about).delta()

    def body(self, request: ChatRequest, *, stream: bool = False) -> dict[str, Any]:
        """What would be sent, less `stream` itself; for a look at it, and for counting."""
        asked = self._ask(request, stream=stream)
        return {"model": asked.model, **asked.body}

    # The request

    def _ask(self, request: ChatRequest, *, stream: bool) -> _Asked:
        model, dialect = model_of(request, self.model), self.dialect
        view = self._views.of(request)
        rules = None if dialect.marks is None else marks.marking_rules(model, dialect.marks)
        settings = without(settings_of(request, model), dialect.refuses)
        values = dict(settings.values)
        body: dict[str, Any] = {"messages": self._messages(request, view, model, rules)}
        offered = self._tools.of(request.tools)
        if tools := [*offered.forms, *values.pop("tools", ())]:
            body["tools"] = tools
            if (choice := choice_of(request.tool_choice, self._views.rules.tool_names)) is not None:
                body["tool_choice"] = _choice(choice)
        form = form_of(request.response_format)
        if form is not None:
            body["response_format"] = _response_format(form if dialect.schemas else form._replace(schema=None))
            if form.schema is not None and not dialect.schemas:
                settings = Settings(settings.values, tuple(sorted((*settings.dropped, "response_format"))))
        if request.max_tokens is not None:
            body[dialect.limit] = request.max_tokens
        key = values.pop("cache_key", None)
        if key is not None and dialect.cache_key is not None:
            body[dialect.cache_key] = key
        if (effort := values.pop("effort", None)) is not None:
            body["reasoning_effort"] = effort
        if rules is not None and rules.kind == "message ends":
            body["prompt_cache_options"] = {"mode": "explicit", **values.pop("prompt_cache_options", {})}
        if stream and dialect.stream_usage:
            body["stream_options"] = {"include_usage": True}
        body.update(values)
        return _Asked(model, body, settings, view, form is not None, offered.names, dialect.details)

    def _messages(
        self, request: ChatRequest, view: Repaired, model: str, rules: CacheRules | None
    ) -> list[dict[str, Any]]:
        dialect = self.dialect
        standing = dialect.system or ("developer" if marks.reasons(model) else None)
        details = self.provider if dialect.details else None
        form = wire.ChatForm(
            rules is not None, standing, dialect.thinking, details, dialect.names, dialect.echo, dialect.short_ids
        )
        messages = [derived(message, form.slot, lambda m: wire.render_message(m, form)) for message in view.messages]
        if rules is not None:
            for place, mark in marks.mark_places(request, view, rules).items():
                for at in range(place, -1, -1):  # a turn that only calls has no place for a mark: the one in front has
                    found = wire.marked_message(messages[at], _mark(mark, rules))
                    if found is not None:
                        messages[at] = found
                        break
        return messages

    def _tool(self, tool: ToolSchema) -> dict[str, Any]:
        function = {"name": tool.name, "description": tool.description, "parameters": parameters_of(tool)}
        return {"type": "function", "function": {**function, "strict": True} if self._strict else function}

    # The answer

    def _result(self, asked: _Asked, response: Mapping[str, Any]) -> LLMResult:
        choices = response.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        for holder in (response, choice):
            if isinstance(holder, Mapping) and holder.get("error"):
                raise failure_from(holder, provider=self.provider)
        if not isinstance(choice, Mapping) or not isinstance(choice.get("message"), Mapping):
            raise TransientError(f"{self.provider}: the answer has no choices")
        return self._answer(asked, choice, response).result()

    def _answer(self, asked: _Asked, choice: Mapping[str, Any], response: Mapping[str, Any]) -> Answer:
        message = choice["message"]
        text, calls, blocks = wire.read_message(message)
        reason = choice.get("finish_reason")
        finish = FINISHED.get(reason, reason) if isinstance(reason, str) else None
        if finish == "stop" and calls:
            finish = "tool_calls"
        elif finish == "stop" and not text and message.get("refusal"):
            finish = "refusal"
        about = {key: response.get(key) for key in _ABOUT}
        if asked.details:
            about["reasoning_details"] = message.get("reasoning_details")
        return Answer(
            text,
            calls,
            blocks,
            finish=finish,
            reason=reason,
            model=response.get("model") or asked.model,
            asked=asked,
            usage=response,
            wire=self.dialect.usage,
            about=about,
            provider=self.provider,
        )


@dataclass(frozen=True)
class _Asked(Asked):
    """`details`: reasoning details go back."""

    details: bool


def _mark(mark: Breakpoint, rules: CacheRules) -> dict[str, dict[str, str]]:
    if rules.kind == "message ends":  # the long lifetime is for responses alone
        return {"prompt_cache_breakpoint": {"mode": "explicit"}}
    long = {"ttl": mark.ttl} if mark.ttl in rules.ttl and rules.is_long(mark.ttl) else {}
    return {"cache_control": {"type": "ephemeral", **long}}


def _choice(choice: Choice) -> Any:
    if choice.kind == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return {"auto": "auto", "any": "required", "none": "none"}.get(choice.kind, choice.raw)


def _response_format(form: Form) -> dict[str, Any]:
    if form.schema is None:
        return {"type": "json_object"}
    strict = {} if form.strict is None else {"strict": form.strict}
    return {"type": "json_schema", "json_schema": {"name": form.name, "schema": form.schema, **strict}}
