"""`GeminiLLM`: Gemini's `generateContent`. Calls the client it is given.

The request reaches the client in `extra_body`: of contents that are handed to it as arguments it makes objects first
and JSON data again after, which takes twenty times as long as writing the request, and respells signatures.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from agentkit.core.contracts.errors import PermanentError, TransientError
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.offers import ToolSchema
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.validity import GEMINI, Rules
from agentkit.models.wire import gemini as wire

from .answers import Answer, Asked, decoded, without
from .base import (
    TIMEOUT,
    Choice,
    ToolForms,
    Views,
    choice_of,
    form_of,
    leading_system,
    model_of,
    parameters_of,
    settings_of,
)
from .failures import provider_errors
from .gemini_stream import Gathered, sent_chunks

_TOP = frozenset({"safetySettings", "toolConfig", "cachedContent", "labels", "serviceTier", "store"})
"""Options that are fields of the request; any other is one of its `generationConfig`."""

NO_FIELD = frozenset({"parallel_tool_calls", "logit_bias", "n", "verbosity", "betas"})
"""Options of other interfaces that this one has no field for."""

_IN_THE_CACHE = ("systemInstruction", "tools", "toolConfig")
"""What may not stand beside `cachedContent`, which holds it."""

FINISHED: Mapping[str, str] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
         "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR"), "content_filter",
    ),
}  # fmt: skip
"""Why an answer ended, in the library's words; any other reason in lower case. An answer that was held back is an
answer, with `content_filter` as its reason and what there was of its text."""


class GeminiLLM:
    """A Gemini model.

    `client`: a `google.genai.Client`. `model`: asked where a request names none. `provider`: how the endpoint is called
    in errors and in `meta`. `timeout`: seconds for one request; nothing is retried. Options are fields of
    `generationConfig` or of the request, in either spelling; `cached_content` names an object that holds the system
    text and the tools, which then are not sent. Raises the errors of `failures`; a stream that is cut off raises
    TransientError, and nothing of it is to be kept.
    """

    repairs = True
    """Any transcript may be handed over: what is sent of it is valid for the provider."""

    def __init__(
        self,
        client: Any,
        *,
        model: str | None = None,
        provider: str = "gemini",
        timeout: float | None = TIMEOUT,
        rules: Rules = GEMINI,
    ) -> None:
        self.model, self.provider = model, provider
        self._client, self._timeout = client, timeout
        self._views, self._tools = Views(rules), ToolForms(_declaration, rules.tool_names)

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        """The whole answer, in one response. A request or an answer that was held back is a result without text."""
        asked = self._ask(request)
        with provider_errors(self.provider):
            found = await self._client.aio.models.generate_content(
                model=asked.model, contents="-", config=self._config(asked.body, should_return_http_response=True)
            )
        answer = Gathered()
        answer.take(decoded((found.sdk_http_response.body or "").encode(), self.provider), self.provider)
        return self._answer(asked, answer).result()

    async def stream(self, request: ChatRequest, /) -> AsyncGenerator[Delta, None]:
        """The answer in pieces; the last one has calls, blocks, usage and finish reason."""
        asked = self._ask(request)
        answer = Gathered()
        with provider_errors(self.provider):
            chunks = await self._client.aio.models.generate_content_stream(
                model=asked.model, contents="-", config=self._config(asked.body)
            )
            async with aclosing(sent_chunks(chunks)) as pieces:
                async for chunk in pieces:
                    text = answer.take(chunk, self.provider)
                    if text:
                        yield Delta(text)
        if answer.reason is None:
            raise TransientError(f"{self.provider}: the stream ended without a finish reason")
        yield self._answer(asked, answer).delta()

    async def count_exact(self, request: ChatRequest) -> int:
        """Input tokens of the request as the provider counts them: one call of `countTokens`."""
        asked = self._ask(request)
        body = asked.body
        if not getattr(self._client, "vertexai", False):
            body = {"generateContentRequest": {"model": f"models/{asked.model.removeprefix('models/')}", **body}}
        with provider_errors(self.provider):
            found = await self._client.aio.models.count_tokens(
                model=asked.model, contents="-", config=self._config({"contents": [], **body})
            )
        if type(found.total_tokens) is not int:
            raise PermanentError(f"{self.provider}: the count of tokens is {found.total_tokens!r}, not a number")
        return found.total_tokens

    def body(self, request: ChatRequest) -> dict[str, Any]:
        """What would be sent; for a look at it, and for counting. The model is part of the address."""
        return self._ask(request).body

    # The request

    def _ask(self, request: ChatRequest) -> Asked:
        model = model_of(request, self.model)
        view = self._views.of(request)
        lead = leading_system(view.messages)
        older = model.rpartition("/")[2].startswith(("gemini-1", "gemini-2"))
        no_levels = ("effort",) if older else ()
        settings = without(settings_of(request, model), (*NO_FIELD, *no_levels))
        values = {_camel(key): value for key, value in settings.values.items() if key != "cache_key"}
        body: dict[str, Any] = {}
        if (system := wire.render_system(view.messages[:lead])) is not None:
            body["systemInstruction"] = system
        offered = self._tools.of(request.tools)
        declared = [{"functionDeclarations": offered.forms}] if offered.forms else []
        if tools := [*declared, *values.pop("tools", ())]:
            body["tools"] = tools
            if (choice := choice_of(request.tool_choice, self._views.rules.tool_names)) is not None:
                body["toolConfig"] = _tool_config(choice)
        body["contents"] = wire.render_contents(view.messages[lead:], waive=not older)
        body.update({key: values.pop(key) for key in sorted(_TOP & values.keys())})
        if "cachedContent" in body:
            body = {key: value for key, value in body.items() if key not in _IN_THE_CACHE}
        form = form_of(request.response_format)
        generation = _thinking(values)
        if (stop := generation.pop("stop", None)) is not None:
            generation["stopSequences"] = [stop] if isinstance(stop, str) else list(stop)
        if request.max_tokens is not None:
            generation["maxOutputTokens"] = request.max_tokens
        if form is not None:
            generation["responseMimeType"] = "application/json"
            if form.schema is not None:
                generation["responseJsonSchema"] = form.schema
        if generation:
            body["generationConfig"] = generation
        return Asked(model, body, settings, view, form is not None, offered.names)

    def _config(self, body: dict[str, Any], **config: Any) -> dict[str, Any]:
        """What the client is told beside the request: one attempt, the time limit, no calls of its own."""
        http: dict[str, Any] = {"extra_body": body, "retry_options": {"attempts": 1}}
        if self._timeout is not None:
            http["timeout"] = int(self._timeout * 1000)
        return {**config, "http_options": http}

    # The answer

    def _answer(self, asked: Asked, answer: Gathered) -> Answer:
        about = answer.about
        text, calls, blocks = wire.read_parts(answer.parts, about.get("responseId") or _stamp(asked.view.messages))
        reason = answer.reason
        finish = None if reason is None else FINISHED.get(reason, reason.lower())
        if answer.is_held_back:
            finish = "content_filter"
        if finish == "stop" and calls:
            finish = "tool_calls"
        told = {key: about.get(key) for key in ("responseId", "promptFeedback", "finishMessage")}
        told["usage"] = answer.usage or None
        return Answer(
            text,
            calls,
            blocks,
            finish=finish,
            reason=reason,
            model=about.get("modelVersion") or asked.model,
            asked=asked,
            usage={"usageMetadata": answer.usage},
            wire="gemini",
            about=told,
            provider=self.provider,
        )


def _declaration(tool: ToolSchema) -> dict[str, Any]:
    schema = {"parametersJsonSchema": parameters_of(tool)} if tool.parameters else {}
    return {"name": tool.name, "description": tool.description, **schema}


def _tool_config(choice: Choice) -> Any:
    if choice.kind == "native":
        return choice.raw
    if choice.kind == "tool":
        return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [choice.name]}}
    return {"functionCallingConfig": {"mode": choice.kind.upper()}}


def _thinking(values: dict[str, Any]) -> dict[str, Any]:
    """Options with `effort` and `thinking` in this provider's spelling."""
    effort, thinking = values.pop("effort", None), values.pop("thinking", None)
    config = dict(values.pop("thinkingConfig", {}))
    if effort is not None:
        config.setdefault("thinkingLevel", effort)
    if isinstance(thinking, Mapping):
        if thinking.get("type") == "disabled":
            config.setdefault("thinkingBudget", 0)
        else:
            config.setdefault("includeThoughts", True)
            if thinking.get("budget_tokens") is not None:
                config.setdefault("thinkingBudget", thinking["budget_tokens"])
    return {**values, "thinkingConfig": config} if config else values


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join([word.capitalize() for word in rest])


def _stamp(messages: Sequence[Message]) -> str:
    """What tells this answer from those to other requests, where the provider did not name it."""
    whole = hashlib.sha256()
    for message in messages:
        whole.update(message.digest)
    return whole.hexdigest()[:16]
