"""Parts of a request to Anthropic's Messages API: fields, choices, forms. Touches only its arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentkit.core.contracts.jsontext import json_text
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.offers import ToolSchema
from agentkit.models.wire import anthropic as wire

from .answers import Asked
from .base import Choice, parameters_of

PROVIDER = "anthropic"

NO_FIELD = frozenset(
    {"seed", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs", "logit_bias", "verbosity", "n"}
)
"""Options of other providers that this API has no field for."""

BINDING_BETA = "thinking-binding-controls-2026-08-01"
"""The beta feature that says what becomes of thinking whose conversation has changed."""


@dataclass(frozen=True)
class Request(Asked):
    """`body` has what the client has arguments for; `more`: fields that go past them, since a client refuses those that
    newer models no longer take."""

    more: dict[str, Any]
    headers: dict[str, str]

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


class System:
    """The `system` of the prefix that was sent last, kept for as long as the very same messages are."""

    def __init__(self) -> None:
        self._known: tuple[Message, ...] = ()
        self._blocks: list[dict[str, Any]] = []

    def of(self, messages: tuple[Message, ...]) -> list[dict[str, Any]]:
        """A list that is not to be changed."""
        if len(messages) != len(self._known) or any(a is not b for a, b in zip(messages, self._known, strict=True)):
            self._known, self._blocks = messages, wire.render_system(messages)
        return self._blocks


def tool_form(tool: ToolSchema) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": parameters_of(tool)}


ADAPTIVE: Mapping[str, Any] = {"type": "adaptive"}
"""How models think that are told nothing, where they always think."""


_BETA = re.compile("[!-+.-~-]+")


def fields_of(values: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Options under the API's own names, and the names of the beta features among them. ValueError for a name of a
    beta feature that no header can hold."""
    values.pop("cache_key", None)
    effort = values.pop("effort", None)
    if effort is not None:
        values["output_config"] = {**values.get("output_config", {}), "effort": effort}
    stop = values.pop("stop", None)
    if stop is not None:
        values["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    betas = list(values.pop("betas", ()))
    for beta in betas:
        if not isinstance(beta, str) or not _BETA.fullmatch(beta):
            raise ValueError(f"options.betas must be names of beta features in visible ASCII, not {beta!r}")
    return values, betas


def set_choice(more: dict[str, Any], choice: Choice | None, forced: bool | None) -> tuple[str, ...]:
    """Puts which tools may be called among the fields; gives the name of the parameter back where the model does not
    let itself be `forced`, and the choice is then left to it."""
    parallel = more.pop("parallel_tool_calls", None)
    is_refused = choice is not None and choice.kind in ("any", "tool") and forced is False
    if is_refused:
        choice = None
    if choice is not None or parallel is False:
        more["tool_choice"] = choice_form(choice or Choice("auto"), parallel)
    return ("tool_choice",) if is_refused else ()


def choice_form(choice: Choice, parallel: bool | None) -> dict[str, Any]:
    if choice.kind == "native":
        return dict(choice.raw)
    made: dict[str, Any] = {"type": choice.kind}
    if choice.name is not None:
        made["name"] = choice.name
    if parallel is False and choice.kind != "none":
        made["disable_parallel_tool_use"] = True
    return made


_UNCHECKED = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems",
    "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip
"""Constraints of JSON Schema that the API refuses in a form. It takes `minItems` of 0 and 1."""


def closed_schema(schema: Any) -> Any:
    """A JSON Schema as this API takes it for the form of an answer.

    Objects take no other properties, which has to be said. A constraint that the API does not take is moved into the
    description, where the model reads it; whoever asked checks the answer against the schema as it was.
    """
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    moved: list[str] = []
    for key, value in schema.items():
        if key in _UNCHECKED and not (key == "minItems" and value in (0, 1)):
            moved.append(f"{key}: {json_text(value)}")
        elif key in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
            made[key] = {name: closed_schema(inner) for name, inner in value.items()}
        elif key in ("anyOf", "oneOf", "allOf") and isinstance(value, (list, tuple)):
            made[key] = [closed_schema(inner) for inner in value]
        else:
            made[key] = closed_schema(value) if key == "items" else value
    if schema.get("type") == "object" and "additionalProperties" not in schema:
        made["additionalProperties"] = False
    if moved:
        made["description"] = " ".join([*filter(None, [schema.get("description")]), f"({', '.join(moved)})"])
    return made


def closed_start(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
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


def is_prefilled(last: Message) -> bool:
    """Whether a request ends with the start of an answer; a paused turn, which goes back as it came, is none."""
    if last.role != "assistant":
        return False
    said = last.meta.get(PROVIDER)
    paused = isinstance(said, Mapping) and said.get("stop_reason") in ("pause_turn", "compaction")
    return not paused and not any(block.get("type") not in _PLAIN for block in wire.render_turn(last)["content"])


_PLAIN = frozenset({"text", "thinking", "redacted_thinking"})
