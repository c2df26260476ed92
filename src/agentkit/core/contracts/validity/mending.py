"""Mending the content of one message, block by block. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from agentkit.core.contracts.jsontext import parse_object, wire_json
from agentkit.core.contracts.surrogates import has_surrogates, replace_surrogates
from agentkit.core.contracts.types import (
    Block,
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
)

from . import native
from .problems import UNNAMED_TOOL
from .rules import Rules

Item: TypeAlias = Block | ToolCall
Note: TypeAlias = tuple[str, str | None, str]

LEADING, SYSTEM, USER, ASSISTANT, RESULT = range(5)
"""What a piece of a transcript is: system text at the start, system text later on, user text, the model's, a result."""


class Mender:
    """The items of one message, mended one by one, with notes of what was done."""

    def __init__(self, rules: Rules, kind: int) -> None:
        self.rules, self.kind = rules, kind
        self.items: list[Item] = []
        self.calls: list[ToolCall] = []
        self.notes: list[Note] = []
        self.blanks = 0
        self.changed = self.stand_in = False

    def take(self, item: Item) -> None:
        kept: Item | None
        if isinstance(item, ToolCall):
            kept = self._call(item)
        elif isinstance(item, TextBlock):
            kept = self._text(item)
        elif isinstance(item, (ThinkingBlock, RedactedThinkingBlock)):
            kept = self._thinking(item)
        elif isinstance(item, NativeBlock):
            kept = self._native(item)
        else:
            kept = self._media(item)
        self.changed = self.changed or kept is not item
        if kept is not None:
            self.items.append(kept)

    def note(self, code: str, detail: str, call_id: str | None = None) -> None:
        self.notes.append((code, call_id, detail))

    def replace_items(self, items: Sequence[Item]) -> None:
        self.items = list(items)
        self.changed = True

    def _call(self, call: ToolCall) -> ToolCall | None:
        if self.kind != ASSISTANT:
            self.note("calls-on", "call on a message that cannot have one: ignored", call.id)
            return None
        self.calls.append(call)
        changes: dict[str, Any] = {}
        if not self.rules.tool_names.fits(call.name):
            changes["name"] = self.rules.tool_names.fit(call.name or UNNAMED_TOOL)
            self.note("name", f"tool name of {len(call.name)} characters: mapped", call.id)
        if call.invalid:
            changes.update(arguments=native.scrubbed(call.arguments), raw=None)
            self.note("arguments", f"text of {len(call.raw or '')} characters: sent inside an object", call.id)
        elif _arguments_spell_surrogates(call):
            clean = parse_object(replace_surrogates(wire_json(call.arguments)))
            changes.update(arguments=native.scrubbed(call.arguments) if clean is None else clean, raw=None)
            self.note("surrogate", "in the arguments: replaced", call.id)
        if not native.MARK_KEYS.isdisjoint(call.meta):
            changes["meta"] = {key: value for key, value in call.meta.items() if key not in native.MARK_KEYS}
            self.note("marks", "taken out of a call", call.id)
        return replace(call, **changes) if changes else call

    def _text(self, block: TextBlock) -> TextBlock | None:
        text, extra = block.text, block.extra
        if not text or text.isspace():
            self.blanks += 1
            return None
        if extra and not native.MARK_KEYS.isdisjoint(extra):
            extra = {key: value for key, value in extra.items() if key not in native.MARK_KEYS}
            self.note("marks", "taken out of a text block")
        if has_surrogates(text) or (extra and native.spells_surrogates(extra)):
            text, clean = replace_surrogates(text), native.scrubbed(extra)
            extra = clean if isinstance(clean, Mapping) else {}
            self.note("surrogate", "in a text: replaced")
        return block if text is block.text and extra is block.extra else TextBlock(text, extra)

    def _thinking(self, block: ThinkingBlock | RedactedThinkingBlock) -> Block | None:
        proof = block.signature if isinstance(block, ThinkingBlock) else block.data
        signed = isinstance(proof, str) and bool(proof.strip())
        text = block.text if isinstance(block, ThinkingBlock) else ""
        if self.kind != ASSISTANT:
            self.note("thinking", "on a message that is not the assistant's: left out")
            return None
        if self.rules.signed_thinking and not signed:
            self.note("thinking", "unsigned: left out")
            return None
        if has_surrogates(text) or (isinstance(proof, str) and has_surrogates(proof)):
            if signed:  # a changed block fails its provider's check, so it goes whole
                self.note("surrogate", "in signed thinking: left out")
                return None
            self.note("surrogate", "in thinking: replaced")
            return ThinkingBlock(replace_surrogates(text))
        return block

    def _native(self, block: NativeBlock) -> Block | None:
        rules, kind = self.rules, native.type_of(block)
        if rules.provider is not None:
            if block.provider != rules.provider or (rules.native is not None and kind not in rules.native):
                self.note("foreign", f"block of {replace_surrogates(block.provider)!r}: left out")
                return None
            if not isinstance(block.payload, dict):
                self.note("foreign", "native block without fields: left out")
                return None
            refusal = self._misplaced(block)
            if refusal is not None:
                self.note(*refusal)
                return None
        payload = native.without_marks(block.payload)
        if payload is not block.payload:
            self.note("marks", "taken out of a native block")
        clean = native.scrubbed(payload)
        if clean is not payload:
            if rules.provider is not None and native.is_thinking(block):
                self.note("surrogate", "in signed thinking: left out")
                return None
            self.note("surrogate", "in a native block: replaced")
        return block if clean is block.payload else NativeBlock(block.provider, clean)

    def _misplaced(self, block: NativeBlock) -> tuple[str, str] | None:
        rules, elsewhere = self.rules, self.kind != ASSISTANT
        if rules.server_calls and elsewhere and (native.is_server_call(block) or native.is_server_result(block)):
            return "server-call", "on a message that is not the assistant's: left out"
        if rules.reasoning_leads and elsewhere and native.is_reasoning(block):
            return "reasoning", "on a message that is not the assistant's: left out"
        if rules.signed_thinking and native.is_thinking(block) and (elsewhere or not native.is_signed(block)):
            return "thinking", "unsigned, or on a message that is not the assistant's: left out"
        return None

    def _media(self, block: Block) -> Block | None:
        if not isinstance(block, (ImageBlock, DocumentBlock)):
            return None  # a CallMark: `ordered` has none left
        if not block.source:
            self.blanks += 1
            return None
        texts = {name: getattr(block, name, None) for name in ("source", "media_type", "title", "detail")}
        bad: dict[str, Any] = {
            name: replace_surrogates(text)
            for name, text in texts.items()
            if isinstance(text, str) and has_surrogates(text)
        }
        if bad:
            self.note("surrogate", "in a picture or file: replaced")
            return replace(block, **bad)
        return block

    def take_out_media(self, natives: bool) -> tuple[Item, ...]:
        """The pictures and files, and `natives` if asked for, which then no longer are among the items."""
        kinds = (ImageBlock, DocumentBlock, NativeBlock) if natives else (ImageBlock, DocumentBlock)
        media = tuple([item for item in self.items if isinstance(item, kinds)])
        if media:
            self.replace_items([item for item in self.items if not isinstance(item, kinds)])
            self.note("media", f"{len(media)} pictures or files: moved to a user message")
        return media

    def spelled(self, name: str | None) -> str | None:
        """The `name` of the message as it may be sent."""
        rule = self.rules.tool_names if self.kind == RESULT else self.rules.speakers
        if name is None:
            return None
        if rule is None:
            fitted: str | None = replace_surrogates(name)
        else:
            fitted = name if rule.fits(name) else rule.fit(name) if name else None
        if fitted != name:
            self.note("surrogate" if rule is None else "name", f"name of {len(name)} characters: mapped")
        return fitted

    def message(self, origin: Message, role: str, name: str | None) -> Message | None:
        """The mended message; None when it is `origin` as it stands."""
        call_id = origin.tool_call_id
        if call_id is not None and self.kind != RESULT and has_surrogates(call_id):
            call_id = replace_surrogates(call_id)
            self.note("surrogate", "in an id: replaced")
        same = (role, name, call_id) == (origin.role, origin.name, origin.tool_call_id)
        if same and not self.changed:
            return None
        return Message(role, None, name, call_id, blocks=self.items, is_error=origin.is_error, meta=origin.meta)

    def finish(self, empty: bool) -> tuple[Note, ...]:
        """All notes, those about emptiness included."""
        if empty:
            self.note("empty", "message left out")
        elif self.blanks and self.items and not self.stand_in:
            self.note("blank", f"{self.blanks} blocks left out")
        return tuple(self.notes)


def _arguments_spell_surrogates(call: ToolCall) -> bool:
    if call.raw is None:
        return has_surrogates(call.wire_arguments)
    if has_surrogates(call.raw):
        return True
    # An escape such as \ud800 is plain ASCII in the text and half a pair once it is read.
    return "\\u" in call.raw and has_surrogates(wire_json(call.arguments))
