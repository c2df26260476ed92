"""Conversations as request bodies of providers: the repaired view, ready to be sent. Touches only its arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentkit.core.contracts.jsontext import wire_json
from agentkit.core.contracts.surrogates import replace_surrogates
from agentkit.core.contracts.types import Message, ToolSchema
from agentkit.core.contracts.validity import ANTHROPIC, OPENAI_CHAT, Rules, repair, require_request
from agentkit.models.wire import anthropic, openai_chat
from agentkit.state.context import WorkingContext

from . import anthropic_messages
from . import openai_chat as openai_messages
from .transcript import Transcript

# Whose responses name a model that the provider's own API takes.
_ANTHROPIC_FORMATS = frozenset({anthropic_messages.NAME, "claude-code"})
_OTHER_NAMES = frozenset({"model", "messages", "system", "tools", "max_tokens"})


def to_anthropic(
    source: Transcript | WorkingContext | Iterable[Message],
    *,
    model: str | None = None,
    max_tokens: int | None = None,
    tools: Iterable[ToolSchema] | None = None,
    rules: Rules = ANTHROPIC,
) -> dict[str, Any]:
    """The request body of Anthropic's Messages API for what the agent would send next; strict, plain JSON data.

    Options that are not given come from the recorded request, if that was one of this API. Cache marks are left out:
    the plan of whoever sends sets its own. Raises EmptyRequestError when there is nothing but system text.
    """
    view, lead, recorded = _view(source, rules, anthropic_messages.NAME)
    body: dict[str, Any] = {
        "model": model or _model_of(recorded) or _last_model(source, _ANTHROPIC_FORMATS),
        "max_tokens": max_tokens if max_tokens is not None else recorded.get("max_tokens"),
        "system": anthropic.render_system(view[:lead]) or None,
        "messages": anthropic.render_messages(view[lead:]),
        "tools": _tools(source, tools, recorded, anthropic.render_tools),
    }
    return _strict(body, recorded)


def to_openai(
    source: Transcript | WorkingContext | Iterable[Message],
    *,
    model: str | None = None,
    max_tokens: int | None = None,
    tools: Iterable[ToolSchema] | None = None,
    rules: Rules = OPENAI_CHAT,
) -> dict[str, Any]:
    """The request body of OpenAI's chat completions for what the agent would send next; as `to_anthropic`."""
    view, _, recorded = _view(source, rules, openai_messages.NAME)
    body: dict[str, Any] = {
        "model": model or _model_of(recorded) or _last_model(source, frozenset({openai_messages.NAME})),
        "max_tokens": max_tokens if max_tokens is not None else recorded.get("max_tokens"),
        "messages": openai_chat.render_messages(view),
        "tools": _tools(source, tools, recorded, openai_chat.render_tools),
    }
    return _strict(body, recorded)


def _view(
    source: Transcript | WorkingContext | Iterable[Message], rules: Rules, format: str
) -> tuple[Sequence[Message], int, Mapping[str, Any]]:
    """The repaired messages, how many of them are the prefix, and the options of a recorded request of this format."""
    recorded: Mapping[str, Any] = {}
    prefix: int | None = None
    if isinstance(source, Transcript):
        if source.format == format:
            recorded = source.request
        source = source.context
    if isinstance(source, WorkingContext):
        prefix = len(source.prefix.as_messages())
        messages: Iterable[Message] = source.assembled()
    else:
        messages = tuple(source)
    view = repair(messages, rules, prefix=prefix).messages
    require_request(view, messages)
    lead = next((i for i, m in enumerate(view) if m.role not in ("system", "developer")), len(view))
    return view, lead if prefix is None else min(lead, prefix), recorded


def _model_of(recorded: Mapping[str, Any]) -> str | None:
    """The model that the recorded request names, as far as it is a name."""
    model = recorded.get("model")
    return model if isinstance(model, str) and model else None


def _last_model(source: Any, formats: frozenset[str]) -> str | None:
    if not isinstance(source, Transcript) or source.format not in formats:
        return None
    return next((r.model for r in reversed(source.responses) if r.model), None)


def _tools(source: Any, given: Iterable[ToolSchema] | None, recorded: Mapping[str, Any], render: Any) -> Any:
    if given is not None:
        return render(given) or None
    raw = recorded.get("tools")
    if isinstance(raw, list):
        marks = ("cache_control",)
        return [{k: v for k, v in t.items() if k not in marks} if isinstance(t, Mapping) else t for t in raw]
    return render(source.tools) or None if isinstance(source, Transcript) else None


def _strict(body: Mapping[str, Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Plain JSON data that every reader takes: no shared or frozen parts, no NaN, no half surrogate pairs."""
    # Without a model it was no request, but say a line of a data set: what else stands there is no option of an API.
    options = {k: v for k, v in recorded.items() if k not in _OTHER_NAMES} if _model_of(recorded) else {}
    filled = {k: v for k, v in body.items() if v is not None}
    plain: dict[str, Any] = json.loads(replace_surrogates(wire_json({**filled, **options})))
    return plain
