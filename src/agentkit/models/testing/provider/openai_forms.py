"""What both of OpenAI's wires share: errors, shapes, tools, usage. Touches only its arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .shapes import FLAG, INTEGER, LIST, NUMBER, OBJECT, TEXT, Event, Shape, is_kind, kind_of, shape
from .values import Refused, Spent

NULL = "|null"
ERRORS = {
    "auth": (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    "billing": (
        429,
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "overloaded": (
        503,
        "service_unavailable_error",
        "server_is_overloaded",
        "Our servers are currently overloaded. Please try again later.",
    ),
    "permission": (403, "invalid_request_error", None, "You have insufficient permissions for this operation."),
    "rate_limit": (429, "tokens", "rate_limit_exceeded", "Rate limit reached for this model."),
    "server": (500, "server_error", None, "The server had an error while processing your request."),
    "too_large": (413, "invalid_request_error", None, "Maximum content size limit exceeded."),
    "unavailable": (503, "server_error", None, "The engine is currently unavailable, please try again later."),
}
"""Status, type, code and words of each kind of error."""

_ARTICLES = {TEXT: "a string", LIST: "an array of objects", OBJECT: "an object", INTEGER: "an integer"}
_ARTICLES |= {NUMBER: "a decimal", FLAG: "a boolean", "null": "null"}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_REASONING = re.compile(r"(?:^|/)(?:gpt-3|gpt-4|chatgpt|gpt-5[^/]*-chat)")
_REASONING = re.compile(r"(?:^|/)(?:o[0-9]|gpt-[5-9])")
DEFAULTS = {"temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0}
"""Values that a model takes even of parameters that it refuses otherwise."""

FUNCTION = {"name": TEXT, "description": TEXT + NULL, "parameters": OBJECT + NULL, "strict": FLAG + NULL}


def no(message: str, param: str | None, code: str | None, *, status: int = 400) -> Refused:
    """A refusal in OpenAI's form."""
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Refused(status, {"error": error})


def refusal(kind: str, message: str | None = None, status: int | None = None) -> Refused:
    """The error of a kind in OpenAI's form."""
    usual, name, code, words = ERRORS[kind]
    return Refused(status or usual, {"error": {"message": message or words, "type": name, "param": None, "code": code}})


def error_event(kind: str, message: str | None = None) -> Event:
    """The error of a kind inside a stream of chat completions."""
    return None, refusal(kind, message).body


def reasons(model: str) -> bool | None:
    """Whether a model of OpenAI's reasons before it answers; None for a model of another name."""
    return False if _NO_REASONING.search(model) else True if _REASONING.search(model) else None


def check_shape(value: Any, wanted: Shape, place: str) -> None:
    """Refuses an object with fields that are missing, unknown or of another kind."""
    inside = f"{place}." if place else ""
    if not isinstance(value, dict):
        raise no(
            f"Invalid type for '{place}': expected an object, but got {_article(value)} instead.", place, "invalid_type"
        )
    for name in wanted.required:
        if name not in value:
            raise no(f"Missing required parameter: '{inside}{name}'.", f"{inside}{name}", "missing_required_parameter")
    for name, one in value.items():
        if name not in wanted.kinds:
            raise no(f"Unknown parameter: '{inside}{name}'.", f"{inside}{name}", "unknown_parameter")
        if not is_kind(one, wanted.kinds[name]):
            kinds = [_ARTICLES.get(kind, kind) for kind in wanted.kinds[name].split("|") if kind != "null"]
            expected = kinds[0] if len(kinds) == 1 else f"one of {' or '.join(kinds)}"
            raise no(
                f"Invalid type for '{inside}{name}': expected {expected}, but got {_article(one)} instead.",
                f"{inside}{name}",
                "invalid_type",
            )


def _article(value: Any) -> str:
    return "an array" if isinstance(value, list) else _ARTICLES[kind_of(value)]


def check_tools(body: Mapping[str, Any], *, nested: bool) -> None:
    """Refuses ill-formed tools. `nested`: functions stand in a field of their own, as in chat completions."""
    tools, names = body.get("tools"), set()
    if tools == [] and nested:  # the other wire takes it for none
        raise no(
            "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            "tools",
            "empty_array",
        )
    for at, tool in enumerate(tools or []):
        place = f"tools[{at}]"
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
            raise no(f"Missing required parameter: '{place}.type'.", f"{place}.type", "missing_required_parameter")
        if tool["type"] != "function":
            continue
        if nested:
            check_shape(tool, shape("type function", type=TEXT, function=OBJECT), place)
            place, tool = f"{place}.function", tool["function"]
            check_shape(tool, shape("name", **FUNCTION), place)
        else:
            check_shape(tool, shape("type name", type=TEXT, defer_loading=FLAG, **FUNCTION), place)
        if not _NAME.fullmatch(tool["name"]):
            raise no(
                f"Invalid '{place}.name': string does not match pattern. Expected a string that matches the pattern "
                "'^[a-zA-Z0-9_-]+$'.",
                f"{place}.name",
                "invalid_value",
            )
        if (tool.get("parameters") or {"type": "object"}).get("type") != "object":
            raise no(
                f"Invalid schema for function '{tool['name']}': schema must be a JSON Schema of 'type: \"object\"'.",
                f"{place}.parameters",
                "invalid_function_parameters",
            )
        names.add(tool["name"])
    for name in ("tool_choice", "parallel_tool_calls"):
        if name in body and not tools and body[name] != "none":
            raise no(f"'{name}' is only allowed when 'tools' are specified.", name, None)
    _check_choice(body.get("tool_choice"), names)


def _check_choice(choice: Any, names: set[str]) -> None:
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        raise no(
            f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'.",
            "tool_choice",
            "invalid_value",
        )
    if isinstance(choice, dict) and choice.get("type") == "function":
        name = (choice.get("function") or choice).get("name")
        if name not in names:
            raise no(f"Tool choice '{name}' not found in 'tools' parameter.", "tool_choice", None)


def text_usage(spent: Spent, prompt: str, output: str) -> dict[str, Any]:
    """Usage with cached tokens inside the figure of the prompt, as OpenAI counts. The names of both figures differ from
    wire to wire."""
    inputs: dict[str, Any] = {
        "cached_tokens": spent.read,
        "cache_write_tokens": spent.write_short + spent.write_long,
    }
    if prompt == "input_tokens":
        ttls = {"ttl_30m_tokens": spent.write_short, "ttl_12h_tokens": spent.write_long}
        inputs["cache_write_tokens_details"] = ttls
    return {
        prompt: spent.prompt,
        output: spent.output,
        "total_tokens": spent.prompt + spent.output,
        f"{prompt}_details": inputs,
        f"{output}_details": {"reasoning_tokens": spent.reasoning},
    }
