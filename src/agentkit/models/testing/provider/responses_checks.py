"""What OpenAI's Responses API refuses. Touches only its arguments, and reads what the provider has stored.

Judges the body as sent, by shapes and rules of its own. Words, codes and order are those of the API as of November
2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .openai_forms import DEFAULTS, check_shape, check_tools, no, reasons
from .responses_shapes import ITEMS, OTHERS, PARTS, REQUEST
from .shapes import Desk

_GIVEN, _SAID = ("input_text", "input_image", "input_file"), ("output_text", "refusal")
_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
LONGEST_ID = 64


def check(body: Any, desk: Desk) -> None:
    """Raises Refused for a request that is not taken."""
    check_shape(body, REQUEST, "")
    if desk.models is not None and body["model"] not in desk.models:
        text = f"The model `{body['model']}` does not exist or you do not have access to it."
        raise no(text, "model", "model_not_found", status=404)
    if not any(body.get(name) for name in ("input", "previous_response_id", "conversation", "prompt")):
        raise no("Missing required parameter: 'input'.", "input", "missing_required_parameter")
    _check_settings(body, desk)
    check_tools(body, nested=False)
    given = body.get("input", [])
    for at, item in enumerate(given if isinstance(given, list) else []):
        _check_item(item, at, desk)
    items = whole_input(body, desk)
    _check_ids(items)
    _check_calls(items)
    _check_reasoning(items, desk)


def whole_input(body: Mapping[str, Any], desk: Desk) -> list[Any]:
    """The items that the model sees: those of the previous response first, where the request names one."""
    given = body.get("input", [])
    items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
    items = [desk.stored[one["id"]] if one.get("type") == "item_reference" else one for one in items]
    previous = body.get("previous_response_id")
    if previous is None:
        return items
    if previous not in desk.stored:
        raise no(
            f"Previous response with id '{previous}' not found.", "previous_response_id", "previous_response_not_found"
        )
    return [*desk.stored[previous], *items]


def _check_settings(body: Mapping[str, Any], desk: Desk) -> None:
    model, effort = body["model"], (body.get("reasoning") or {}).get("effort")
    for name in desk.abilities(model).refused({**body, "effort": effort} if effort else body):
        if body.get(name) is not None and body[name] != DEFAULTS.get(name):
            raise no(
                f"Unsupported parameter: '{name}' is not supported with this model.", name, "unsupported_parameter"
            )
    if effort is not None and reasons(model) is False:
        raise no(
            "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
            "reasoning.effort",
            "unsupported_parameter",
        )
    if effort is not None and effort not in ("none", "minimal", "low", "medium", "high", "xhigh", "max"):
        raise no(f"Invalid value: '{effort}'.", "reasoning.effort", "invalid_value")
    if (most := body.get("max_output_tokens")) is not None and most < 16:
        raise no(
            f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got {most} "
            "instead.",
            "max_output_tokens",
            "integer_below_min_value",
        )
    if body.get("previous_response_id") is not None and body.get("conversation") is not None:
        raise no("Mutually exclusive parameters: 'previous_response_id' and 'conversation'.", "conversation", None)


def _check_item(item: Any, at: int, desk: Desk) -> None:
    place = f"input[{at}]"
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind in OTHERS:
        return
    if kind not in ITEMS:
        names = ", ".join(f"'{one}'" for one in sorted([*ITEMS, *OTHERS]))
        raise no(f"Invalid value: '{kind}'. Supported values are: {names}.", place, "invalid_value")
    check_shape(item, ITEMS[kind], place)
    if kind == "item_reference" and item["id"] not in desk.stored:
        raise _lost(item["id"])
    _check_item_ids(item, kind, place)
    if kind == "message":
        _check_message(item, place)
    elif kind == "function_call" and not _NAME.fullmatch(item["name"]):
        raise no(
            f"Invalid '{place}.name': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            f"{place}.name",
            "invalid_value",
        )
    elif kind == "function_call_output" and isinstance(item["output"], list):
        _check_parts(item["output"], _GIVEN, f"{place}.output")


def _check_item_ids(item: Mapping[str, Any], kind: str, place: str) -> None:
    for name in ("id", "call_id"):
        value = item.get(name)
        if value is None:
            continue
        if len(value) > LONGEST_ID:
            raise no(
                f"Invalid '{place}.{name}': string too long. Expected a string with maximum length {LONGEST_ID}, but "
                f"got a string with length {len(value)} instead.",
                f"{place}.{name}",
                "string_above_max_length",
            )
        if not value:
            raise no(
                f"Invalid '{place}.{name}': empty string. Expected a string with minimum length 1, but got an empty "
                "string instead.",
                f"{place}.{name}",
                "empty_string",
            )
    wanted = _PREFIXES.get(kind)
    if wanted and item.get("id") is not None and not item["id"].startswith(wanted):
        raise no(
            f"Invalid '{place}.id': '{item['id']}'. Expected an ID that begins with '{wanted}'.",
            f"{place}.id",
            "invalid_value",
        )


def _check_message(item: Mapping[str, Any], place: str) -> None:
    role = item["role"]
    if role not in ("user", "assistant", "system", "developer"):
        raise no(
            f"Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', and 'user'.",
            f"{place}.role",
            "invalid_value",
        )
    if isinstance(item["content"], list):
        _check_parts(item["content"], _SAID if role == "assistant" else _GIVEN, f"{place}.content")


def _check_parts(parts: list[Any], allowed: tuple[str, ...], place: str) -> None:
    for at, part in enumerate(parts):
        inside = f"{place}[{at}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in allowed:
            names = ", ".join(f"'{one}'" for one in allowed)
            raise no(f"Invalid value: '{kind}'. Supported values are: {names}.", inside, "invalid_value")
        check_shape(part, PARTS[kind], inside)


def _check_ids(items: list[Any]) -> None:
    seen: set[str] = set()
    for item in items:
        own = item.get("id")
        if own is not None and own in seen:
            raise no(
                f"Duplicate item found with id {own}. Remove duplicate items from your input and try again.",
                "input",
                None,
            )
        seen.add(own)


def _check_calls(items: list[Any]) -> None:
    open_calls: list[str] = []
    called: set[str] = set()
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            if item["call_id"] in called:
                raise no(f"Duplicate function call with call_id {item['call_id']}.", "input", None)
            called.add(item["call_id"])
            open_calls.append(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in open_calls:
                text = f"No tool call found for function call output with call_id {item['call_id']}."
                raise no(text, "input", None)
            open_calls.remove(item["call_id"])
    if open_calls:
        raise no(f"No tool output found for function call {open_calls[0]}.", "input", None)


def _check_reasoning(items: list[Any], desk: Desk) -> None:
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind in ("reasoning", "compaction"):
            sealed = item.get("encrypted_content")
            if sealed is None and item["id"] not in desk.stored:
                raise _lost(item["id"])
            if sealed is not None and desk.seal.opened(sealed) is None:
                raise no(
                    f"The encrypted content {sealed[:8]}... could not be verified.",
                    "input",
                    "invalid_encrypted_content",
                )
        if kind == "reasoning" and not _led_to_something(items, at):
            raise no(
                f"Item '{item['id']}' of type 'reasoning' was provided without its required following item.",
                "input",
                None,
            )
    _check_led_by_reasoning(items, desk)


def _led_to_something(items: list[Any], at: int) -> bool:
    """Whether something of the model's stands behind a reasoning item, with at most more reasoning between."""
    for item in items[at + 1 :]:
        kind = item.get("type", "message")
        if kind != "reasoning":
            return kind not in ("function_call_output", "compaction") and item.get("role", "assistant") == "assistant"
    return False


def _check_led_by_reasoning(items: list[Any], desk: Desk) -> None:
    """An item that the provider has stored needs the reasoning that it came from, if it is named by its id."""
    present: set[Any] = set()
    for item in items:
        needed = desk.stored.get(f"reasoning of {item.get('id')}")
        if needed is not None and needed not in present:
            raise no(
                f"Item '{item['id']}' of type '{item.get('type', 'message')}' was provided without its required "
                f"'reasoning' item: '{needed}'.",
                "input",
                None,
            )
        present.add(item.get("id"))


def _lost(item_id: str) -> Exception:
    return no(
        f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. Try again with "
        "`store` set to true, or remove this item from your input.",
        "input",
        None,
        status=404,
    )


def check_size(body: Mapping[str, Any], tokens: int, desk: Desk) -> None:
    """Refuses a prompt that does not fit into the model's window."""
    window = desk.windows(body["model"])
    if window is not None and tokens > window and body.get("truncation") != "auto":
        raise no(
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "input",
            "context_length_exceeded",
        )
