"""What one message has wrong by itself, and what is left of it for a provider. Touches only its arguments.

Kept on the message under a name per rule set, so that judging a known transcript reads no text again. It holds no
reference to the message itself where that passes unchanged: no cycle keeps a transcript alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentkit.core.contracts.framing import frame
from agentkit.core.contracts.messages import derived
from agentkit.core.contracts.surrogates import replace_surrogates
from agentkit.core.contracts.types import (
    Message,
    NativeBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    marked,
)

from . import native
from .mending import ASSISTANT, LEADING, RESULT, SYSTEM, USER, Item, Mender, Note
from .problems import MEDIA_MOVED, NO_OUTPUT
from .rules import Rules

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
    mender = Mender(rules, kind)
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


def _leading_piece(message: Message, mender: Mender) -> Piece:
    media = mender.take_out_media(mender.rules.provider is not None)
    name = mender.spelled(message.name)
    return Piece(LEADING, mender.message(message, message.role, name), not mender.items, media=media)


def _system_piece(message: Message, mender: Mender) -> Piece:
    if not mender.rules.late_system:
        return _framed(message, mender, "late-system", "system-message")
    return _leading_piece(message, mender)._replace(kind=SYSTEM)


def _user_piece(message: Message, mender: Mender) -> Piece:
    if message.role != "user":
        return _framed(message, mender, "role", "message")
    name = mender.spelled(message.name)
    return Piece(USER, mender.message(message, "user", name), not mender.items)


def _framed(message: Message, mender: Mender, code: str, tag: str) -> Piece:
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


def _assistant_piece(message: Message, mender: Mender) -> Piece:
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


def _result_piece(message: Message, mender: Mender) -> Piece:
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
    mender = Mender(rules, RESULT)
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
