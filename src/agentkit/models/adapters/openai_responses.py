"""`OpenAIResponsesLLM`: OpenAI's responses, with the provider keeping nothing. Calls the client it is given.

Every request carries the whole conversation as items; what the model thought comes and goes encrypted. Items reach the
client in `extra_body`, for the reason given in `openai_chat`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from agentkit.core.contracts.errors import PermanentError, TransientError
from agentkit.core.contracts.messages import Message, derived
from agentkit.core.contracts.offers import Breakpoint, ToolSchema
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.validity import OPENAI_RESPONSES, Repaired, Rules
from agentkit.models.cache.rules import CacheRules
from agentkit.models.usage_wires import LONG_TTLS
from agentkit.models.wire import openai_responses as wire

from . import openai_marks as marks
from .answers import Answer, Asked, decoded, request_id, without
from .base import (
    TIMEOUT,
    Choice,
    Form,
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

ENCRYPTED = "reasoning.encrypted_content"
NO_FIELD = frozenset(
    {"thinking", "betas", "stop", "seed", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "n"}
)
"""Options of other interfaces that this one has no field for."""
_COUNTED = ("input", "tools", "tool_choice", "text", "reasoning", "parallel_tool_calls", "truncation")
"""What the endpoint that counts tokens takes of a request."""


class OpenAIResponsesLLM:
    """A model behind `/v1/responses`.

    `client`: an `openai.AsyncOpenAI`; its own retries are turned off. `model`: asked where a request names none.
    `provider`: who serves it, for errors and `meta`; any but `openai` gets no cache marks. `store`: whether the
    provider keeps the answers; without it, reasoning goes back encrypted. `timeout`: seconds for one request.
    `strict_tools`: arguments keep to the tools' schemas, which then have to be of the strict kind. Options are fields
    of the API; of our own names, `effort` and `verbosity` are parts of `reasoning` and `text`, `tools` stand behind the
    request's own, `cache_key` is `prompt_cache_key`.

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
        store: bool = False,
        timeout: float | None = TIMEOUT,
        strict_tools: bool = False,
        rules: Rules = OPENAI_RESPONSES,
    ) -> None:
        self.model, self.provider, self.store = model, provider, store
        self._client = without_retries(client, timeout)
        self._strict = strict_tools
        self._views, self._tools = Views(rules), ToolForms(self._tool, rules.tool_names)

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        """The whole answer, in one response."""
        asked = self._ask(request)
        with provider_errors(self.provider):
            raw = await self._client.responses.with_raw_response.create(
                model=asked.model, stream=False, extra_body=asked.body
            )
        return self._answer(asked, decoded(raw.content, self.provider), None, request_id(raw)).result()

    async def stream(self, request: ChatRequest, /) -> AsyncGenerator[Delta, None]:
        """The answer in pieces; the last one has calls, blocks, usage and finish reason."""
        asked = self._ask(request)
        items: dict[int, Any] = {}
        response: Mapping[str, Any] | None = None
        with provider_errors(self.provider):
            events = await self._client.responses.create(model=asked.model, stream=True, extra_body=asked.body)
            named = request_id(getattr(events, "response", None))
            async with aclosing(raw_events(events)) as pieces:
                async for _, event in pieces:
                    kind = event.get("type")
                    if kind == "response.output_text.delta" and event.get("delta"):
                        yield Delta(event["delta"])
                    elif kind == "response.output_item.done":
                        items[event.get("output_index", len(items))] = event.get("item")
                    elif kind in ("response.completed", "response.incomplete", "response.failed"):
                        response = event.get("response")
                    elif kind == "error" or event.get("error"):
                        # The request was taken: an error that bears no code is the server's.
                        told = event if event.get("code") or event.get("error") else {**event, "code": "server_error"}
                        raise failure_from(told, provider=self.provider)
        if response is None:
            raise TransientError(f"{self.provider}: the stream ended before the response did")
        yield self._answer(asked, response, [items[at] for at in sorted(items)], named).delta()

    async def count_exact(self, request: ChatRequest) -> int:
        """Input tokens of the request as the provider counts them: one call of `/v1/responses/input_tokens`."""
        asked = self._ask(request)
        body = {name: asked.body[name] for name in _COUNTED if name in asked.body}
        with provider_errors(self.provider):
            raw = await self._client.responses.input_tokens.with_raw_response.count(model=asked.model, extra_body=body)
        found = decoded(raw.content, self.provider).get("input_tokens")
        if type(found) is not int:
            raise PermanentError(f"{self.provider}: the count of input tokens is {found!r}, not a number")
        return found

    def body(self, request: ChatRequest) -> dict[str, Any]:
        """What would be sent, less `stream` itself; for a look at it, and for counting."""
        asked = self._ask(request)
        return {"model": asked.model, **asked.body}

    # The request

    def _ask(self, request: ChatRequest) -> Asked:
        model = model_of(request, self.model)
        view = self._views.of(request)
        rules = marks.marking_rules(model, "openai") if self.provider == "openai" else None
        settings = without(settings_of(request, model), NO_FIELD)
        values = dict(settings.values)
        stored = bool(values.pop("store", self.store))
        body: dict[str, Any] = {"input": self._items(request, view, rules, stored), "store": stored}
        offered = self._tools.of(request.tools)
        if tools := [*offered.forms, *values.pop("tools", ())]:
            body["tools"] = tools
            if (choice := choice_of(request.tool_choice, self._views.rules.tool_names)) is not None:
                body["tool_choice"] = _choice(choice)
        form = form_of(request.response_format)
        if form is not None:
            body["text"] = {"format": _format(form)}
        if (verbosity := values.pop("verbosity", None)) is not None:
            body["text"] = {**body.get("text", {}), "verbosity": verbosity}
        if "text" in body:
            body["text"] |= values.pop("text", {})
        if request.max_tokens is not None:
            body["max_output_tokens"] = request.max_tokens
        if (effort := values.pop("effort", None)) is not None:
            body["reasoning"] = {**values.pop("reasoning", {}), "effort": effort}
        if not stored and marks.reasons(model):
            body["include"] = list(dict.fromkeys([ENCRYPTED, *values.pop("include", ())]))
        if (key := values.pop("cache_key", None)) is not None:
            body["prompt_cache_key"] = key
        if rules is not None:
            body["prompt_cache_options"] = {"mode": "explicit", **values.pop("prompt_cache_options", {})}
        body.update(values)
        return Asked(model, body, settings, view, form is not None, offered.names)

    def _items(
        self, request: ChatRequest, view: Repaired, rules: CacheRules | None, stored: bool
    ) -> list[dict[str, Any]]:
        form = wire.ItemForm(rules is not None, stored, self.provider not in ("openai", "azure"))
        kinds: dict[str, str] = {}
        groups: list[list[dict[str, Any]]] = []
        for message in view.messages:
            if message.tool_calls:
                kinds.update(derived(message, "_odd_calls", wire.odd_calls))
            groups.append(_rendered(message, form, wire.result_kind(message, kinds)))
        if rules is not None:
            for place, mark in marks.mark_places(request, view, rules).items():
                for at in range(place, -1, -1):  # an answer has no place for a mark: what stands in front of it has
                    found = wire.marked_items(groups[at], _mark(mark, rules))
                    if found is not None:
                        groups[at] = found
                        break
        return wire.unique_items(item for group in groups for item in group)

    def _tool(self, tool: ToolSchema) -> dict[str, Any]:
        return {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": parameters_of(tool),
            "strict": self._strict,  # left out, it would be taken for true
        }

    # The answer

    def _answer(self, asked: Asked, response: Mapping[str, Any], items: list[Any] | None, named: str | None) -> Answer:
        status = response.get("status")
        if status == "failed" or response.get("error"):
            raise failure_from(response, provider=self.provider)
        if status in ("queued", "in_progress"):
            raise PermanentError(f"{self.provider}: the response is {status}: background mode is not for this adapter")
        output = response.get("output")
        given = items or (output if isinstance(output, list) else [])
        text, calls, blocks = wire.read_output([item for item in given if isinstance(item, Mapping)])
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, Mapping) else None
        finish = {None: "incomplete", "max_output_tokens": "length"}.get(reason, reason)
        if status not in ("incomplete", "cancelled"):
            reason, finish = status, "tool_calls" if calls else "stop"
            if not text and not calls and _refused(given):
                finish = "refusal"
        about = {key: response.get(key) for key in ("id", "service_tier", "usage", "prompt_cache_diagnostics")}
        return Answer(
            text,
            calls,
            blocks,
            finish=finish,
            reason=reason,
            model=response.get("model") or asked.model,
            asked=asked,
            usage=response,
            wire="openai_responses",
            about={**about, "request_id": named},
            provider=self.provider,
        )


def _rendered(message: Message, form: wire.ItemForm, kind: str) -> list[dict[str, Any]]:
    return derived(message, form.slot + kind, lambda m: wire.render_message(m, form, kind))


def _mark(mark: Breakpoint, rules: CacheRules) -> dict[str, str]:
    """The mark on the wire. A long lifetime, whosever name it bears, asks for the long one of these rules."""
    long = [name for name in rules.ttl if rules.is_long(name)] if mark.ttl in LONG_TTLS else []
    return {"mode": "explicit", "ttl": long[0]} if long else {"mode": "explicit"}


def _choice(choice: Choice) -> Any:
    if choice.kind == "tool":
        return {"type": "function", "name": choice.name}
    return {"auto": "auto", "any": "required", "none": "none"}.get(choice.kind, choice.raw)


def _format(form: Form) -> dict[str, Any]:
    if form.schema is None:
        return {"type": "json_object"}
    strict = {} if form.strict is None else {"strict": form.strict}
    return {"type": "json_schema", "name": form.name, "schema": form.schema, **strict}


def _refused(items: list[Any]) -> bool:
    parts = [part for item in items if isinstance(item, Mapping) for part in item.get("content") or ()]
    return any(isinstance(part, Mapping) and part.get("type") == "refusal" for part in parts)
