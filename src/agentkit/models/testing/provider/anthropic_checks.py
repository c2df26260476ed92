"""What Anthropic's Messages API refuses. Touches only its arguments.

Judges the body as sent, by shapes and rules of its own: a check beside the one that adapters go by. Words and order of
the errors are those of the API as of November 2026: shapes first, then the transcript, then the size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from agentkit.models.catalog.abilities import Abilities

from .anthropic_marks import check_marks
from .anthropic_shapes import BETA, BLOCKS, BY_ROLE, COUNTED, IN_RESULT, REQUEST, SERVER_RESULT, SOURCES, TOOL
from .shapes import FLAG, INTEGER, LIST, NUMBER, OBJECT, TEXT, Desk, Shape, is_kind, shape
from .values import Refused

_KINDS = {
    TEXT: "a valid string",
    LIST: "a valid list",
    OBJECT: "a valid dictionary",
    INTEGER: "a valid integer",
    NUMBER: "a valid number",
    FLAG: "a valid boolean",
}
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def error(status: int, kind: str, message: str) -> Refused:
    """A refusal in Anthropic's form."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_fake"}
    return Refused(status, body)


def check(body: Any, headers: Mapping[str, str], desk: Desk, *, counting: bool = False) -> None:
    """Raises Refused for a request that is not taken. `counting`: it asks for the number of tokens only."""
    if "anthropic-version" not in headers:
        _no("anthropic-version: header is required")
    if not isinstance(body, dict):
        _no("Input should be a valid dictionary")
    betas = BETA if "anthropic-beta" in headers else {}
    kinds = {name: kind for name, kind in REQUEST.kinds.items() if not counting or name in COUNTED}
    required = tuple(name for name in REQUEST.required if name in kinds)
    _shaped(body, Shape({**kinds, **betas}, required), "")
    if desk.models is not None and body["model"] not in desk.models:
        raise error(404, "not_found_error", f"model: {body['model']}")
    if not counting and body["max_tokens"] < 0:
        _no("max_tokens: Input should be greater than or equal to 0")
    _check_system(body.get("system"))
    _check_tools(body.get("tools", []), body.get("tool_choice"))
    _check_settings(body, desk)
    for at, message in enumerate(body["messages"]):
        _check_message(message, at)
        if message["role"] == "system" and desk.abilities(body["model"]).late_system is not True:
            _no(f"messages.{at}.role: role 'system' is not supported on this model")
    _check_order(body["messages"])
    _check_calls(body["messages"])
    _check_thinking(body, desk)
    _check_end(body, desk)
    check_marks(body, _no)


def _no(message: str) -> NoReturn:
    raise error(400, "invalid_request_error", message)


def _shaped(value: Any, wanted: Shape, place: str) -> None:
    if not isinstance(value, dict):
        _no(f"{place}: Input should be a valid dictionary")
    inside = f"{place}." if place else ""
    for name in wanted.required:
        if name not in value:
            _no(f"{inside}{name}: Field required")
    for name, one in value.items():
        if name not in wanted.kinds:
            _no(f"{inside}{name}: Extra inputs are not permitted")
        kinds = wanted.kinds[name]
        if not is_kind(one, kinds):
            _no(f"{inside}{name}: Input should be {_KINDS.get(kinds.split('|')[0], 'of another kind')}")


def _check_system(system: Any) -> None:
    if isinstance(system, list):
        for at, block in enumerate(system):
            _check_block(block, f"system.{at}", {"text"})
            if not block["text"]:
                _no("system: text content blocks must be non-empty")


def _check_tools(tools: list[Any], choice: Any) -> None:
    names: set[str] = set()
    for at, tool in enumerate(tools):
        own = not isinstance(tool, dict) or tool.get("type") in (None, "custom")
        place = f"tools.{at}.custom" if own else f"tools.{at}"
        if own:
            _shaped(tool, TOOL, place)
            if tool["input_schema"].get("type") != "object":
                _no(f"{place}.input_schema.type: Input should be 'object'")
        name = tool.get("name", tool.get("type"))
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            _no(f"{place}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if name in names:
            _no("tools: Tool names must be unique.")
        names.add(name)
    if choice is None:
        return
    if choice.get("type") not in ("auto", "any", "tool", "none"):
        _no(f"tool_choice: Input tag '{choice.get('type')}' found using 'type' does not match any of the expected tags")
    if not tools and choice["type"] != "none":
        _no("tool_choice may only be specified while providing tools")
    if choice["type"] == "tool" and choice.get("name") not in names:
        _no(f"Tool '{choice.get('name')}' not found in provided tools")


def _check_settings(body: Mapping[str, Any], desk: Desk) -> None:
    known = desk.abilities(body["model"])
    refused = known.refused(body)
    for name in ("temperature", "top_p", "top_k"):
        if name in refused and name in known.refuses:
            _no(f"`{name}` is deprecated for this model.")
    if not 0 <= body.get("temperature", 0) <= 1:
        _no("temperature: Input should be less than or equal to 1")
    for at, one in enumerate(body.get("stop_sequences", [])):
        if not isinstance(one, str) or not one.strip():
            _no(f"stop_sequences.{at}: each stop sequence must contain non-whitespace")
    effort = (body.get("output_config") or {}).get("effort")
    if effort is not None and known.efforts is not None and effort not in known.efforts:
        _no(f"output_config.effort: Input should be {', '.join(known.efforts)}")
    if "thinking" in body:
        _check_thinking_settings(body, body["thinking"], known)
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool") and known.forced_tools is False:
        _no("tool_choice: forced tool use is not supported on this model")


def _check_thinking_settings(body: Mapping[str, Any], thinking: Mapping[str, Any], known: Abilities) -> None:
    kind = thinking.get("type")
    if kind not in ("enabled", "disabled", "adaptive", "between_tools"):
        _no(f"thinking: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    if known.thinking is not None and kind not in known.thinking:
        options = " or ".join(f'"thinking.type.{one}"' for one in known.thinking)
        _no(f'"thinking.type.{kind}" is not supported for this model. Use {options}.')
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int):
            _no("thinking.enabled.budget_tokens: Field required")
        if budget < 1024:
            _no("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if body.get("max_tokens", budget + 1) <= budget:
            _no("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if kind in ("enabled", "adaptive"):
        if body.get("temperature", 1) != 1:
            _no("`temperature` may only be set to 1 when thinking is enabled.")
        if "top_k" in body:
            _no("`top_k` must be unset when thinking is enabled.")
        if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
            _no("Thinking may not be enabled when tool_choice forces tool use.")


def _check_message(message: Any, at: int) -> None:
    place = f"messages.{at}"
    _shaped(message, shape("role content", role=TEXT, content=f"{TEXT}|{LIST}"), place)
    role = message["role"]
    if role not in BY_ROLE:
        _no(f"{place}.role: Input should be 'user' or 'assistant'")
    if isinstance(message["content"], list):
        for number, block in enumerate(message["content"]):
            _check_block(block, f"{place}.content.{number}", BY_ROLE[role])


def _check_block(block: Any, place: str, allowed: set[str]) -> None:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        _no(f"{place}.type: Field required")
    kind = block["type"]
    server = kind.endswith("_tool_result") and "text" in allowed and "tool_use" in allowed
    if kind not in allowed and not server:
        _no(
            f"{place}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {sorted(allowed)}"
        )
    _shaped(block, SERVER_RESULT if server else BLOCKS[kind], f"{place}.{kind}")
    if kind in ("tool_use", "server_tool_use") and not _ID.fullmatch(block["id"]):
        _no(f"{place}.{kind}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if kind == "tool_use" and not _NAME.fullmatch(block["name"]):
        _no(f"{place}.{kind}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    if kind in ("image", "document"):
        source = block["source"]
        if source.get("type") not in SOURCES:
            _no(f"{place}.{kind}.source: Input tag '{source.get('type')}' does not match any of the expected tags")
        _shaped(source, SOURCES[source["type"]], f"{place}.{kind}.source.{source['type']}")
        if source["type"] == "base64" and not source["data"]:
            _no(f"{place}.{kind}.source.base64: {kind} cannot be empty")
    if kind == "tool_result":
        _check_result(block, place)


def _check_result(block: Mapping[str, Any], place: str) -> None:
    content = block.get("content", "")
    if isinstance(content, str):
        return
    for at, part in enumerate(content):
        _check_block(part, f"{place}.tool_result.content.{at}", IN_RESULT)
        if part["type"] == "text" and not part["text"].strip():
            _no("messages: text content blocks must contain non-whitespace text")
        if part["type"] != "text" and block.get("is_error"):
            _no(f'{place}: all content must be type "text" if "is_error" is true')


def _check_order(messages: list[Any]) -> None:
    if not messages:
        _no("messages: at least one message is required")
    if messages[0]["role"] != "user":
        _no("messages: The first message must always use the user role")
    for at, message in enumerate(messages):
        last = at == len(messages) - 1 and message["role"] == "assistant"
        content = message["content"]
        if not content and not last:
            _no(
                f"messages.{at}: all messages must have non-empty content except for the optional final assistant "
                "message"
            )
        for block in blocks_of(message):
            if block["type"] == "text" and not block["text"]:
                _no("messages: text content blocks must be non-empty")
            if block["type"] == "text" and not block["text"].strip():
                _no("messages: text content blocks must contain non-whitespace text")


def blocks_of(message: Mapping[str, Any]) -> list[Any]:
    """The blocks of a message; a text is one of them."""
    content = message["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content)


def _turns(messages: list[Any]) -> Iterator[tuple[int, str, list[Any]]]:
    """Neighbours of one role as one turn, which is how the API reads them: place, role, blocks."""
    at = 0
    while at < len(messages):
        start, role, found = at, messages[at]["role"], []
        while at < len(messages) and messages[at]["role"] == role:
            found += blocks_of(messages[at])
            at += 1
        yield start, role, found


def _check_calls(messages: list[Any]) -> None:
    seen: set[str] = set()
    open_calls: list[str] = []
    for at, role, blocks in _turns(messages):
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        for number, call_id in enumerate(results):
            if call_id not in open_calls:
                _no(
                    f"messages.{at}.content.{number}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{call_id}. "
                    "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
        if len(set(results)) != len(results):
            twice = next(one for one in results if results.count(one) > 1)
            _no(
                f"messages.{at}.content: each tool_use must have a single result. Found multiple `tool_result` blocks "
                f"with id: {twice}"
            )
        missing = [call_id for call_id in open_calls if call_id not in results]
        behind = [block["type"] == "tool_result" for block in blocks[: len(results)]]
        if missing or (open_calls and not all(behind)):
            _unanswered(at, missing or open_calls)
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"] if role == "assistant" else []
        for call_id in open_calls:
            if call_id in seen:
                _no(f"messages.{at}.content: `tool_use` ids must be unique")
            seen.add(call_id)
        if role == "assistant":
            _check_server_calls(at, blocks, last=at + 1 >= len(messages))
    if open_calls:
        _unanswered(len(messages), open_calls)


def _unanswered(at: int, ids: list[str]) -> NoReturn:
    _no(
        f"messages.{at - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(ids)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _check_server_calls(at: int, blocks: list[Any], *, last: bool) -> None:
    results = [one["tool_use_id"] for one in blocks if one["type"].endswith("_tool_result")]
    calls = [one["id"] for one in blocks if one["type"] == "server_tool_use"]
    for call_id in calls:
        if call_id not in results and not last:
            _no(f"messages.{at}: `server_tool_use` with id {call_id} was found without a corresponding result block")
    for call_id in results:
        if call_id not in calls:
            _no(f"messages.{at}: unexpected `tool_use_id` found in a server tool's result block: {call_id}")


def _check_thinking(body: Mapping[str, Any], desk: Desk) -> None:
    for at, message in enumerate(body["messages"]):
        blocks = blocks_of(message)
        for number, block in enumerate(blocks):
            if block["type"] == "thinking" and not desk.seal.holds(block["thinking"], block["signature"]):
                _no(f"messages.{at}.content.{number}: Invalid `signature` in `thinking` block")
            if block["type"] == "redacted_thinking" and desk.seal.opened(block["data"]) is None:
                _no(f"messages.{at}.content.{number}: Invalid `data` in `redacted_thinking` block")
        if message["role"] == "assistant" and blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
            _no(f"messages.{at}: The final block in an assistant message cannot be `thinking`.")
    if (body.get("thinking") or {}).get("type") == "enabled":
        _check_begins_with_thinking(body["messages"])


def _check_begins_with_thinking(messages: list[Any]) -> None:
    """With manual thinking, the turn that calls and is now being answered must begin with what was thought."""
    turns = list(_turns(messages))
    if len(turns) < 2 or not any(block["type"] == "tool_result" for block in turns[-1][2]):
        return
    at, role, blocks = turns[-2]
    if role == "assistant" and blocks[0]["type"] not in ("thinking", "redacted_thinking"):
        _no(
            f"messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{blocks[0]['type']}`. When `thinking` is enabled, a final `assistant` message must start with a "
            "thinking block."
        )


def _check_end(body: Mapping[str, Any], desk: Desk) -> None:
    last = body["messages"][-1]
    if last["role"] != "assistant":
        return
    blocks = blocks_of(last)
    if desk.abilities(body["model"]).prefill is False and not any(one["type"] == "server_tool_use" for one in blocks):
        _no("This model does not support assistant message prefill. The conversation must end with a user message.")
    if blocks and blocks[-1]["type"] == "text" and blocks[-1]["text"] != blocks[-1]["text"].rstrip():
        _no("messages: final assistant content cannot end with trailing whitespace")


def check_size(body: Mapping[str, Any], tokens: int, desk: Desk) -> None:
    """Refuses a prompt that does not fit into the model's window, alone or with its output."""
    window = desk.windows(body["model"])
    if window is None:
        return
    if tokens > window:
        _no(f"prompt is too long: {tokens} tokens > {window} maximum")
    if tokens + body.get("max_tokens", 0) > window:
        _no(
            f"input length and `max_tokens` exceed context limit: {tokens} + {body['max_tokens']} > {window}, decrease "
            "input length or `max_tokens` and try again"
        )
