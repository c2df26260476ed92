"""What one message has wrong by itself, and what is left of it for a provider. Touches only its arguments.

Kept on the message under a name per rule set, so that judging a known transcript reads no text again. It holds no
reference to the message itself where that passes unchanged: no cycle keeps a transcript alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from agentkit.core.contracts.framing import frame
from agentkit.core.contracts.jsontext import parse_object, wire_json
from agentkit.core.contracts.messages import derived
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
    marked,
)

from . import native
from .problems import MEDIA_MOVED, NO_OUTPUT, UNNAMED_TOOL
from .rules import Rules

Item: TypeAlias = Block | ToolCall
Note: TypeAlias = tuple[str, str | None, str]

LEADING, SYSTEM, USER, ASSISTANT, RESULT = range(5)
"""What a piece of a transcript is: system text at the start, system text later on, user text, the model's, a result."""

SYNTHETIC, PENDING, FINAL = range(3)
"""How much a result is worth: a stand-in, an interim one, the real one."""


class Piece(NamedTuple):
    """A message, or a part of one, as it will be sent if nothing around it objects.

    `message`: None stands for the input message itself. `calls`: as the input has them, in the order sent. `media`:
    what has to move behind the batch. `knotty`: whether what is sent of it depends on what stands around it.
    """

    kind: int
    message: Message | None = None
    empty: bool = False
    calls: tuple[ToolCall, ...] = ()
    media: tuple[Item, ...] = ()
    call_id: str = ""
    name: str | None = None
    rank: int = FINAL
    late: bool = False
    knotty: bool = False


class Own(NamedTuple):
    """The pieces of one message, and what was done to it: code, call id, detail."""

    pieces: tuple[Piece, ...]
    notes: tuple[Note, ...] = ()


def own(message: Message, rules: Rules, leading: bool) -> Own:
    """`judge`, computed once per message and rule set."""
    slot = rules.slots[leading]
    found: Own | None = message.__dict__.get(slot)
    return derived(message, slot, lambda m: judge(m, rules, leading)) if found is None else found


def judge(message: Message, rules: Rules, leading: bool) -> Own:
    """What is left of `message` under `rules`. `leading`: nothing but system text is in front of it."""
    kind = _kind(message.role, leading)
    mender = _Mender(rules, kind)
    results = []
    for item in message.ordered:
        if isinstance(item, NativeBlock) and native.is_tool_result(item):
            results.append(item)
        else:
            mender.take(item)
    if not results:
        main = _PIECES[kind](message, mender)
        return Own((main,), mender.finish(main.empty))
    # Whatever is left of it opens the turn of an assistant, even if that is nothing; elsewhere results come first.
    mender.changed = True
    rest = [_PIECES[kind](message, mender)] if mender.items or kind == ASSISTANT else []
    notes = mender.finish(False)
    split = []
    for block in results:
        piece, more = _native_result(block, message, rules)
        split.append(piece)
        notes += more
    return Own(tuple(rest + split if kind in (ASSISTANT, LEADING) else split + rest), notes)


def _kind(role: str, leading: bool) -> int:
    if role in ("system", "developer"):
        return LEADING if leading else SYSTEM
    if role == "assistant":
        return ASSISTANT
    return RESULT if role in ("tool", "function") else USER


class _Mender:
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
            return ThinkingBlock(replace_surrogates(text), proof if isinstance(block, ThinkingBlock) else None)
        return block

    def _native(self, block: NativeBlock) -> Block | None:
        rules, kind = self.rules, native.type_of(block)
        if rules.provider is not None:
            if block.provider != rules.provider or (rules.native is not None and kind not in rules.native):
                self.note("foreign", f"block of {replace_surrogates(block.provider)!r}: left out")
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


def _leading_piece(message: Message, mender: _Mender) -> Piece:
    media = mender.take_out_media(mender.rules.provider is not None)
    name = mender.spelled(message.name)
    return Piece(LEADING, mender.message(message, message.role, name), not mender.items, media=media)


def _system_piece(message: Message, mender: _Mender) -> Piece:
    if not mender.rules.late_system:
        return _framed(message, mender, "late-system", "system-message")
    return _leading_piece(message, mender)._replace(kind=SYSTEM)


def _user_piece(message: Message, mender: _Mender) -> Piece:
    if message.role != "user":
        return _framed(message, mender, "role", "message")
    name = mender.spelled(message.name)
    return Piece(USER, mender.message(message, "user", name), not mender.items)


def _framed(message: Message, mender: _Mender, code: str, tag: str) -> Piece:
    """The text of a role that has no place there, as user text that says whose it was."""
    text = "".join([item.text for item in mender.items if isinstance(item, TextBlock)])
    others: list[Item] = [item for item in mender.items if not isinstance(item, TextBlock)]
    if text:
        role, name = replace_surrogates(message.role), replace_surrogates(message.name or "") or None
        others.insert(0, TextBlock(frame(tag, text, role=role, name=name)))
    if others:
        mender.note(code, "sent as framed user text")
    mender.replace_items(others)
    return Piece(USER, mender.message(message, "user", None), not others)


def _assistant_piece(message: Message, mender: _Mender) -> Piece:
    media = () if mender.rules.media_in_replies else mender.take_out_media(False)
    name = mender.spelled(message.name)
    mended = mender.message(message, "assistant", name)
    return Piece(
        ASSISTANT,
        mended,
        not mender.items,
        tuple(mender.calls),
        media,
        knotty=is_knotty(mender.items, mender.rules),
    )


def _result_piece(message: Message, mender: _Mender) -> Piece:
    rules = mender.rules
    if message.role != "tool":
        mender.note("role", "sent as the result of a tool")
    allowed = rules.media_in_errors if message.is_error else rules.media_in_results
    media = () if allowed else mender.take_out_media(rules.provider is not None)
    if not mender.items:
        mender.replace_items([TextBlock(MEDIA_MOVED if media else NO_OUTPUT)])
        mender.stand_in = True
        if not media:
            mender.note("empty", "result without content: a fixed text stands in")
    name = mender.spelled(message.name)
    return Piece(
        RESULT,
        mender.message(message, "tool", name),
        media=media,
        call_id=message.tool_call_id or "",
        name=message.name,
        rank=_rank(message),
        late=marked(message, "late") is not None,
    )


_PIECES = {
    LEADING: _leading_piece,
    SYSTEM: _system_piece,
    USER: _user_piece,
    ASSISTANT: _assistant_piece,
    RESULT: _result_piece,
}


def _native_result(block: NativeBlock, parent: Message, rules: Rules) -> tuple[Piece, tuple[Note, ...]]:
    """A tool message made of a native result; the marks of its message go for it too."""
    call_id, blocks, is_error = native.read_tool_result(block)
    marks = parent.meta.get("agentkit")
    meta = {"agentkit": marks} if isinstance(marks, Mapping) else {}
    message = Message("tool", None, tool_call_id=call_id, blocks=blocks, is_error=is_error, meta=meta)
    mender = _Mender(rules, RESULT)
    mender.note("native-result", "made a tool message", call_id)
    if native.without_marks(block.payload) is not block.payload:
        mender.note("marks", "taken out of a native block", call_id)
    for item in message.ordered:
        if isinstance(item, NativeBlock):  # its marks were noted with the whole
            item = NativeBlock(item.provider, native.without_marks(item.payload))
        elif isinstance(item, TextBlock) and not native.MARK_KEYS.isdisjoint(item.extra):
            item = TextBlock(item.text, {k: v for k, v in item.extra.items() if k not in native.MARK_KEYS})
        mender.take(item)
    mender.changed = True
    piece = _result_piece(message, mender)
    return piece, mender.finish(False)


def _rank(message: Message) -> int:
    if marked(message, "synthetic") is not None:
        return SYNTHETIC
    return FINAL if marked(message, "pending") is None else PENDING


def is_thought(item: Item, rules: Rules) -> bool:
    """Whether this is thinking, which by itself is no content."""
    if isinstance(item, NativeBlock):
        return rules.provider is not None and native.is_thinking(item)
    return isinstance(item, (ThinkingBlock, RedactedThinkingBlock))


def is_reasoning(item: Item, rules: Rules) -> bool:
    """Whether this is a reasoning item, which has to lead to something."""
    return rules.reasoning_leads and isinstance(item, NativeBlock) and native.is_reasoning(item)


def is_knotty(items: Sequence[Item], rules: Rules) -> bool:
    """Whether it depends on the neighbours what of these assistant items is sent."""
    if items and (is_thought(items[-1], rules) or is_reasoning(items[-1], rules)):
        return True
    if not rules.server_calls:
        return False
    natives = [item for item in items if isinstance(item, NativeBlock)]
    return any(native.is_server_call(item) or native.is_server_result(item) for item in natives)


def _arguments_spell_surrogates(call: ToolCall) -> bool:
    if call.raw is None:
        return has_surrogates(call.wire_arguments)
    if has_surrogates(call.raw):
        return True
    # An escape such as \ud800 is plain ASCII in the text and half a pair once it is read.
    return "\\u" in call.raw and has_surrogates(wire_json(call.arguments))
