"""Messages as items of OpenAI's responses. Touches only its arguments.

Renders a view that the rules OPENAI_RESPONSES accept; anything else is for `agentkit.core.contracts.validity` to mend
first. What an item says beside its content goes back as it came: of a text under `item` in `TextBlock.extra` (id,
status, phase) with the part's own fields beside it, of a call in `ToolCall.meta`, of all else in a native block that
holds the whole item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agentkit.core.contracts.types import (
    Block,
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    TextBlock,
    ToolCall,
)

from .media import UNSENT, data_uri, is_link
from .openai_output import ACTIONS, CALLS, FREE_INPUT
from .openai_output import read_call as read_call
from .openai_output import read_output as read_output


@dataclass(frozen=True)
class ItemForm:
    """How items are spelled. `parts`: as in chat completions. `stored`: the provider keeps answers, so that reasoning
    may go back by its id alone; else reasoning without its encrypted content stays out, since nobody could read it.
    `typed`: a text of another model has the whole form of a message too, which other endpoints demand."""

    parts: bool = False
    stored: bool = False
    typed: bool = False

    @cached_property
    def slot(self) -> str:
        return f"_items_{self.parts}_{self.stored}_{self.typed}"


PLAIN = ItemForm()

_PARTS = frozenset({"input_text", "input_image", "input_file"})
"""Native blocks that are parts of what the model is given. Those below are parts of what it says; any other is an item
of its own. A part on a message of the other side is left out, since nobody takes it there."""
_REPLY_PARTS = frozenset({"output_text", "refusal"})
_BESIDE_TEXT = ("annotations", "logprobs")
"""Fields of a text of the model that go back; what other providers put beside texts does not."""
_NOWHERE = frozenset({"input_audio", "summary_text", "reasoning_text", "file", "image_url"})
"""Parts of other interfaces, or of items."""
_MARKABLE = frozenset({"input_text", "input_image", "input_file"})


def render_items(view: Sequence[Message], form: ItemForm = PLAIN) -> list[dict[str, Any]]:
    """The `input` of a view."""
    kinds: dict[str, str] = {}
    items: list[dict[str, Any]] = []
    for message in view:
        kinds.update(odd_calls(message))
        items += render_message(message, form, result_kind(message, kinds))
    return items


def odd_calls(message: Message) -> dict[str, str]:
    """The calls in a message that are no plain function calls, by id: their results are of kinds of their own."""
    return {
        call.id: kind
        for call in message.tool_calls
        if (kind := call.meta.get("type")) in CALLS and kind != "function_call"
    }


def result_kind(message: Message, kinds: Mapping[str, str]) -> str:
    """The type of the item that a result is, by the kind of its call."""
    return f"{kinds.get(message.tool_call_id or '', 'function_call')}_output" if message.role == "tool" else ""


def render_message(message: Message, form: ItemForm = PLAIN, kind: str = "") -> list[dict[str, Any]]:
    """The items of one message of a view. `kind`: what `result_kind` says of a result."""
    if message.role == "tool":
        return [_result(message, form, kind or "function_call_output")]
    if message.role == "assistant":
        return _reply(message, form)
    role = "developer" if message.role in ("system", "developer") else message.role
    if not message.blocks or role == "developer":
        content: Any = [_text(message.content)] if form.parts else message.content
        return [{"role": role, "content": content}]
    items: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for block in message.blocks:
        if isinstance(block, NativeBlock) and _type(block) not in _PARTS:
            if _type(block) not in _REPLY_PARTS | _NOWHERE:
                _flush(items, role, parts)
                items.append(_native(block))
        elif (part := _part(block)) is not None:
            parts.append(part)
    if not parts and not items:
        parts.append(_text(UNSENT))
    _flush(items, role, parts)
    if len(items) == 1 and not form.parts and _is_text(items[0].get("content")):
        return [{"role": role, "content": items[0]["content"][0]["text"]}]
    return items


def marked_items(items: Sequence[dict[str, Any]], mark: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """A copy of a message's items with a cache mark on the last part that takes one; None if none does.

    Answers of the model take none: their parts have no such field.
    """
    for at in range(len(items) - 1, -1, -1):
        item = items[at]
        field = "output" if str(item.get("type", "")).endswith("_output") else "content"
        parts = item.get(field)
        if item.get("role") == "assistant" or not isinstance(parts, list):
            continue
        for place in range(len(parts) - 1, -1, -1):
            if isinstance(parts[place], Mapping) and parts[place].get("type") in _MARKABLE:
                marked = {**parts[place], "prompt_cache_breakpoint": dict(mark)}
                copy = {**item, field: [*parts[:place], marked, *parts[place + 1 :]]}
                return [*items[:at], copy, *items[at + 1 :]]
    return None


def unique_items(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items, no id twice: of what comes again a native item is left out, any other goes without its id. A merge of
    two forks can hold one answer twice, and the provider refuses that."""
    found: list[dict[str, Any]] = []
    seen: set[str] = set()
    for item in items:
        own = item.get("id")
        if isinstance(own, str):
            if own in seen:
                item = _nameless(item)
                if "id" in item:
                    continue
            seen.add(own)
        found.append(item)
    return found


def _reply(message: Message, form: ItemForm) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    about: Mapping[str, Any] | None = None
    parts: list[dict[str, Any]] = []
    hidden = False

    def flush() -> None:
        nonlocal about, parts
        if parts:
            items.append(_said(about, parts, form.typed))
        about, parts = None, []

    for entry in message.ordered:
        if isinstance(entry, TextBlock):
            item = entry.extra.get("item")
            if parts and item != about:
                flush()
            about = item
            extra = {key: entry.extra[key] for key in _BESIDE_TEXT if key in entry.extra}
            parts.append({"type": "output_text", "text": entry.text, **extra})
        elif isinstance(entry, NativeBlock) and _type(entry) in _REPLY_PARTS:
            parts.append(_native(entry))
        else:
            flush()
            if isinstance(entry, ToolCall):
                items.append(_call(entry))
            elif isinstance(entry, NativeBlock):
                if _type(entry) in _PARTS | _NOWHERE:
                    continue
                if form.stored or _is_readable(entry):
                    items.append(_native(entry))
                else:
                    hidden = True
            elif isinstance(entry, (ImageBlock, DocumentBlock)):
                raise ValueError("a picture or file has no form in an answer; repair the view first")
    flush()
    # What the provider has stored is refused by its id `without its required reasoning item`, and taken without one.
    return _with_led([_nameless(item) for item in items] if hidden else items)


def _said(about: Mapping[str, Any] | None, parts: list[dict[str, Any]], typed: bool) -> dict[str, Any]:
    if about is None:
        if not typed and all(part.keys() == {"type", "text"} for part in parts):
            return {"role": "assistant", "content": "".join([part["text"] for part in parts])}
        about = {"type": "message"}
        parts = [{"annotations": [], **p} if p.get("type") == "output_text" else p for p in parts]
    return {**about, "role": "assistant", "content": parts}


def _is_readable(block: NativeBlock) -> bool:
    payload = block.payload
    return _type(block) != "reasoning" or bool(payload.get("encrypted_content") or payload.get("content"))


def _nameless(item: dict[str, Any]) -> dict[str, Any]:
    """A text or a call without its id; any other item as it is, since its id is all that it has."""
    if "id" not in item or (item.get("role") != "assistant" and item.get("type") not in CALLS):
        return item
    return {key: value for key, value in item.items() if key != "id"}


def _with_led(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items less reasoning that leads to a text without an id, which stands in for what it had led to: the provider
    answers `reasoning was provided without its required following item`."""
    found: list[dict[str, Any]] = []
    for item in reversed(items):
        after = found[-1] if found else {}
        if item.get("type") == "reasoning" and after.get("role") == "assistant" and "id" not in after:
            continue
        found.append(item)
    return found[::-1]


def _call(call: ToolCall) -> dict[str, Any]:
    kind = call.meta.get("type")
    # A call of this wire has the type of its item; what is noted beside any other is another provider's affair.
    rest = {key: value for key, value in call.meta.items() if key != "type"} if kind in CALLS else {}
    kind = kind if kind in CALLS else "function_call"
    if kind in ACTIONS:
        field, _ = ACTIONS[kind]
        return {"type": kind, "call_id": call.id, field: call.arguments, **rest}
    if kind == FREE_INPUT:
        given = call.arguments.get("input")
        text = given if isinstance(given, str) else call.wire_arguments
        return {"type": kind, "call_id": call.id, "name": call.name, "input": text, **rest}
    return {"type": kind, "call_id": call.id, "name": call.name, "arguments": call.wire_arguments, **rest}


def _result(message: Message, form: ItemForm, kind: str) -> dict[str, Any]:
    item: dict[str, Any] = {"type": kind, "call_id": message.tool_call_id or ""}
    parts = [part for block in message.blocks if (part := _part(block)) and part["type"] in _PARTS]
    parts = parts or [_text(message.content)]
    if kind == "computer_call_output":
        shot = next((p for p in reversed(parts) if p["type"] == "input_image"), None)
        shown = {"type": "computer_screenshot", **({} if shot is None else {"image_url": shot.get("image_url")})}
        return {**item, "output": shown}
    if kind == "shell_call_output":
        outcome = {"type": "exit", "exit_code": int(message.is_error)}
        return {**item, "output": [{"stdout": message.content, "stderr": "", "outcome": outcome}]}
    if kind == "apply_patch_call_output":
        return {**item, "status": "failed" if message.is_error else "completed", "output": message.content}
    if kind == "local_shell_call_output":
        return {"type": kind, "id": item["call_id"], "output": message.content}
    return {**item, "output": parts[0]["text"] if not form.parts and _is_text(parts) else parts}


def _flush(items: list[dict[str, Any]], role: str, parts: list[dict[str, Any]]) -> None:
    if parts:
        items.append({"role": role, "content": list(parts)})
        parts.clear()


def _is_text(parts: Any) -> bool:
    return isinstance(parts, list) and len(parts) == 1 and parts[0].keys() == {"type", "text"}


def _text(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _part(block: Block) -> dict[str, Any] | None:
    """What a block is in a message that is not the model's, and in a result."""
    if isinstance(block, TextBlock):
        return _text(block.text)
    if isinstance(block, ImageBlock):
        return _image(block)
    if isinstance(block, DocumentBlock):
        return _document(block)
    return _native(block) if isinstance(block, NativeBlock) else None


def _image(block: ImageBlock) -> dict[str, Any]:
    detail = {} if block.detail is None else {"detail": block.detail}
    source = block.source
    if isinstance(source, bytes):
        return {"type": "input_image", "image_url": data_uri(source, block.media_type, "image/png"), **detail}
    return {"type": "input_image", "image_url" if is_link(source) else "file_id": source, **detail}


def _document(block: DocumentBlock) -> dict[str, Any]:
    name = {} if block.title is None else {"filename": block.title}
    source = block.source
    if isinstance(source, bytes):
        name = name or {"filename": "document"}  # data without a name is refused
        return {"type": "input_file", **name, "file_data": data_uri(source, block.media_type, "application/pdf")}
    # A link names itself, and a name beside it is refused.
    return {"type": "input_file", "file_url": source} if is_link(source) else {"type": "input_file", "file_id": source}


def _type(block: NativeBlock) -> Any:
    return block.payload.get("type") if isinstance(block.payload, Mapping) else None


def _native(block: NativeBlock) -> dict[str, Any]:
    if not isinstance(block.payload, dict):
        raise ValueError("a native block without fields has no form on OpenAI's wire; repair the view first")
    return block.payload
