"""OpenAI's chat completions: what they refuse, and what they answer. Touches only its arguments.

Judges the body as sent, by shapes and rules of its own. Words, codes and order are those of the API as of November
2026; every error names its parameter as the API does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .openai_forms import DEFAULTS, NULL, check_shape, check_tools, no, reasons
from .shapes import ANY, FLAG, INTEGER, LIST, NUMBER, OBJECT, TEXT, Desk, shape

REQUEST = shape(
    "model messages",
    model=TEXT,
    messages=LIST,
    stream=FLAG + NULL,
    stream_options=OBJECT + NULL,
    tools=LIST,
    tool_choice=f"{TEXT}|{OBJECT}",
    parallel_tool_calls=FLAG,
    response_format=OBJECT,
    temperature=NUMBER + NULL,
    top_p=NUMBER + NULL,
    max_tokens=INTEGER + NULL,
    max_completion_tokens=INTEGER + NULL,
    reasoning_effort=TEXT + NULL,
    verbosity=TEXT + NULL,
    stop=f"{TEXT}|{LIST}|null",
    n=INTEGER + NULL,
    seed=INTEGER + NULL,
    frequency_penalty=NUMBER + NULL,
    presence_penalty=NUMBER + NULL,
    logit_bias=OBJECT + NULL,
    logprobs=FLAG + NULL,
    top_logprobs=INTEGER + NULL,
    prompt_cache_key=TEXT,
    prompt_cache_options=OBJECT,
    prompt_cache_retention=TEXT + NULL,
    safety_identifier=TEXT,
    service_tier=TEXT + NULL,
    metadata=OBJECT + NULL,
    store=FLAG + NULL,
    user=TEXT,
    modalities=LIST + NULL,
    audio=OBJECT + NULL,
    prediction=OBJECT + NULL,
    moderation=ANY,
    web_search_options=OBJECT,
)
_CONTENT = f"{TEXT}|{LIST}"
MESSAGES = {
    "system": shape("role content", role=TEXT, content=_CONTENT, name=TEXT),
    "developer": shape("role content", role=TEXT, content=_CONTENT, name=TEXT),
    "user": shape("role content", role=TEXT, content=_CONTENT, name=TEXT),
    "assistant": shape(
        "role",
        role=TEXT,
        content=_CONTENT + NULL,
        name=TEXT,
        refusal=TEXT + NULL,
        tool_calls=LIST,
        audio=OBJECT + NULL,
        annotations=LIST,
    ),
    "tool": shape("role content tool_call_id", role=TEXT, content=_CONTENT, tool_call_id=TEXT),
}
_MARK = {"prompt_cache_breakpoint": OBJECT}
PARTS = {
    "text": shape("text", type=TEXT, text=TEXT, **_MARK),
    "image_url": shape("image_url", type=TEXT, image_url=OBJECT, **_MARK),
    "input_audio": shape("input_audio", type=TEXT, input_audio=OBJECT, **_MARK),
    "file": shape("file", type=TEXT, file=OBJECT, **_MARK),
    "refusal": shape("refusal", type=TEXT, refusal=TEXT),
}
_BY_ROLE = {"user": ("text", "image_url", "input_audio", "file"), "assistant": ("text", "refusal")}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SAID = ("content", "tool_calls", "refusal", "audio")
LONGEST_ID = 40


def check(body: Any, desk: Desk) -> None:
    """Raises Refused for a request that is not taken."""
    check_shape(body, REQUEST, "")
    if desk.models is not None and body["model"] not in desk.models:
        text = f"The model `{body['model']}` does not exist or you do not have access to it."
        raise no(text, None, "model_not_found", status=404)
    if not body["messages"]:
        raise no(
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            "messages",
            "empty_array",
        )
    _check_settings(body, desk)
    check_tools(body, nested=True)
    for at, message in enumerate(body["messages"]):
        _check_message(message, at)
    _check_calls(body["messages"])


def _check_settings(body: Mapping[str, Any], desk: Desk) -> None:
    model = body["model"]
    for name in desk.abilities(model).refused(body):
        value = body.get(name)
        if value is not None and value != DEFAULTS.get(name):
            raise no(
                f"Unsupported value: '{name}' does not support {value} with this model. Only the default (1) value is "
                "supported.",
                name,
                "unsupported_value",
            )
    if body.get("max_tokens") is not None and reasons(model):
        raise no(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            "max_tokens",
            "unsupported_parameter",
        )
    if body.get("reasoning_effort") is not None and reasons(model) is False:
        raise no(
            "Unrecognized request argument supplied: reasoning_effort", "reasoning_effort", "unsupported_parameter"
        )
    if body.get("stream_options") is not None and not body.get("stream"):
        raise no("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options", None)
    if (body.get("response_format") or {}).get("type") == "json_object":
        told = " ".join(_texts(message) for message in body["messages"])
        if "json" not in told.lower():
            raise no(
                "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
                "messages",
                None,
            )


def _texts(message: Any) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _check_message(message: Any, at: int) -> None:
    place = f"messages[{at}]"
    role = message.get("role") if isinstance(message, dict) else None
    if role not in MESSAGES:
        known = ", ".join(f"'{one}'" for one in MESSAGES)
        raise no(f"Invalid value: '{role}'. Supported values are: {known}.", f"{place}.role", "invalid_value")
    check_shape(message, MESSAGES[role], place)
    name = message.get("name")
    if name is not None and not _NAME.fullmatch(name):
        raise no(
            f"Invalid '{place}.name': string does not match pattern. Expected a string that matches the pattern "
            "'^[^\\s<|\\\\/>]+$'.",
            f"{place}.name",
            "invalid_value",
        )
    _check_content(message, role, place)
    if "tool_calls" in message:
        _check_tool_calls(message["tool_calls"], f"{place}.tool_calls")
    if role == "assistant" and not any(message.get(name) is not None for name in _SAID):
        raise no(
            f"Invalid value for 'content': expected a string, got null. ({place})",
            f"{place}.content",
            "invalid_type",
        )


def _check_content(message: Mapping[str, Any], role: str, place: str) -> None:
    content = message.get("content")
    if not isinstance(content, list):
        return
    if not content:
        raise no(
            f"Invalid '{place}.content': empty array. Expected an array with minimum length 1, but got an empty array "
            "instead.",
            f"{place}.content",
            "empty_array",
        )
    allowed = _BY_ROLE.get(role, ("text",))
    for number, part in enumerate(content):
        inside = f"{place}.content[{number}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "image_url" and role != "user":
            raise no(
                f"Invalid '{place}'. Image URLs are only allowed for messages with role 'user', but this message with "
                f"role '{role}' contains an image URL.",
                place,
                "invalid_value",
            )
        if kind not in allowed:
            names = ", ".join(f"'{one}'" for one in allowed)
            raise no(f"Invalid value: '{kind}'. Supported values are: {names}.", f"{inside}.type", "invalid_value")
        check_shape(part, PARTS[kind], inside)


def _check_tool_calls(calls: list[Any], place: str) -> None:
    if not calls:
        raise no(
            f"Invalid '{place}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            place,
            "empty_array",
        )
    ids: set[str] = set()
    for at, call in enumerate(calls):
        inside = f"{place}[{at}]"
        check_shape(call, shape("id type function", id=TEXT, type=TEXT, function=OBJECT), inside)
        function = shape("name arguments", name=TEXT, arguments=TEXT)
        check_shape(call["function"], function, f"{inside}.function")
        if call["type"] != "function":
            raise no(
                f"Invalid value: '{call['type']}'. Supported values are: 'function'.", f"{inside}.type", "invalid_value"
            )
        if len(call["id"]) > LONGEST_ID:
            raise no(
                f"Invalid '{inside}.id': string too long. Expected a string with maximum length {LONGEST_ID}, but "
                f"got a string with length {len(call['id'])} instead.",
                f"{inside}.id",
                "string_above_max_length",
            )
        if not call["id"] or call["id"] in ids:
            raise no(
                f"Invalid '{inside}.id': ids of tool calls must be unique and not empty.",
                f"{inside}.id",
                "invalid_value",
            )
        if not _NAME.fullmatch(call["function"]["name"]):
            raise no(
                f"Invalid '{inside}.function.name': string does not match pattern. Expected a string that matches the "
                "pattern '^[a-zA-Z0-9_-]+$'.",
                f"{inside}.function.name",
                "invalid_value",
            )
        ids.add(call["id"])


def _check_calls(messages: list[Any]) -> None:
    waiting: list[str] = []
    asked, caller = False, 0
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            if not asked:
                raise no(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    f"messages.[{at}].role",
                    None,
                )
            if message["tool_call_id"] not in waiting:
                raise no(
                    f"Invalid parameter: 'tool_call_id' of '{message['tool_call_id']}' not found in 'tool_calls' of "
                    "previous message.",
                    f"messages.[{at}].tool_call_id",
                    None,
                )
            waiting.remove(message["tool_call_id"])
            continue
        _all_answered(waiting, caller)
        waiting = [call["id"] for call in message.get("tool_calls", [])]
        asked, caller = bool(waiting), at
    _all_answered(waiting, caller)


def _all_answered(waiting: list[str], caller: int) -> None:
    if waiting:
        raise no(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
            f"messages.[{caller + 1}].role",
            None,
        )


def check_size(body: Mapping[str, Any], tokens: int, desk: Desk) -> None:
    """Refuses a prompt that does not fit into the model's window."""
    window = desk.windows(body["model"])
    if window is not None and tokens > window:
        raise no(
            f"This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} "
            "tokens. Please reduce the length of the messages.",
            "messages",
            "context_length_exceeded",
        )
