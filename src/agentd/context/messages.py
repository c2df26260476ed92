"""Entries as the library's messages: what a request is built of, and what is counted. Touches only its arguments.

Text that is not the sender's own is framed: notes of the runtime, late system text, skills, the summary. JSON results
stay JSON however they are shortened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import msgspec

from agentkit.core.contracts.blocks import DocumentBlock, ImageBlock, TextBlock
from agentkit.core.contracts.errors import FormatError
from agentkit.core.contracts.framing import frame
from agentkit.core.contracts.frozen import thaw
from agentkit.core.contracts.messages import Message, ToolCall, mark
from agentkit.core.contracts.usage import Usage
from agentkit.state.compaction import Source, Summary, clamp, clamp_json, render_summary, source_of
from agentkit.state.compaction.ranges import size_of

from .record import (
    AssistantMsg,
    Call,
    DataPart,
    Entry,
    FilePart,
    Mark,
    Msg,
    NoteMsg,
    Part,
    Reported,
    SkillChange,
    SystemMsg,
    TextPart,
    Told,
    ToolMsg,
    UserMsg,
)
from .view import View

RECALL = "context.recall"
"""The tool that reads entries that are not shown, or not in full."""

Known: TypeAlias = MutableMapping[tuple[int, Mark | None], Message]
"""Messages that were made before, by entry and mark: handed back in, an entry is converted and counted once."""


class Shown(NamedTuple):
    """A message and the entry that it stands for; None for the summary and for skills behind it."""

    n: int | None
    message: Message


def messages(
    shown: View,
    log: Iterable[Entry],
    *,
    context: str = "",
    bodies: Mapping[str, str] | None = None,
    summary_tokens: int = 4_096,
    rule_tokens: int | None = None,
    known: Known | None = None,
) -> list[Shown]:
    """The view as messages: summary, skills whose load was folded, then the visible entries in order.

    `bodies`: texts of skills by hash; one that is not there is left out. `rule_tokens`: room of the constraints.
    """
    made: list[Shown] = []
    if shown.summary:
        made.append(
            Shown(None, summary_message(shown, context=context, max_tokens=summary_tokens, rule_tokens=rule_tokens))
        )
    skills = {ref.entry: ref for ref in shown.skills if ref.status != "evicted"}
    for ref in skills.values():
        text = (bodies or {}).get(ref.hash)
        if text is not None and not shown.shows(ref.entry):
            made.append(Shown(None, _skill_message(ref.name, text)))
    for entry in shown.entries(log):
        if isinstance(entry.body, SkillChange):
            ref_here = skills.get(entry.n)
            text = (bodies or {}).get(ref_here.hash) if ref_here is not None else None
            if ref_here is not None and text is not None:
                made.append(Shown(entry.n, _skill_message(ref_here.name, text)))
        else:
            made.append(Shown(entry.n, entry_message(entry, shown.visible.marks.get(entry.n), known)))
    return made


def summary_message(
    shown: View, *, context: str = "", max_tokens: int = 4_096, rule_tokens: int | None = None
) -> Message:
    """The summary as one message of user role, marked as what it is."""
    return _rendered(shown.summary, context, shown.told, max_tokens, rule_tokens)


# Between two folds every request shows the same one: the same object, so that it is rendered and counted once.
@lru_cache(maxsize=64)
def _rendered(summary: Summary, context: str, told: Told, max_tokens: int, rule_tokens: int | None) -> Message:
    text = render_summary(
        summary,
        context=context or None,
        version=told.version,
        handled=told.handled,
        max_tokens=max_tokens,
        rule_tokens=rule_tokens,
        recall=RECALL,
    ).text
    return mark(Message("user", text), "summary", covers=size_of(summary.covers))


def _skill_message(name: str, text: str) -> Message:
    return Message("user", frame("skill", text, name=name))


def entry_message(entry: Entry, how: Mark | None = None, known: Known | None = None) -> Message:
    """One entry as a message, shortened as its mark says."""
    key = entry.n, how
    if known is not None and (found := known.get(key)) is not None:
        return found
    made = _shortened(entry.body, entry.n, how) if how is not None else message_of(entry.body)
    if known is not None:
        known[key] = made
    return made


def message_of(msg: Msg) -> Message:
    """A message of the record as the library's, in full."""
    if isinstance(msg, UserMsg):
        return _plain("user", msg.parts)
    if isinstance(msg, ToolMsg):
        return _result(msg, result_text(msg.content))
    if isinstance(msg, AssistantMsg):
        return _answer(msg)
    if isinstance(msg, SystemMsg):
        return Message("user", frame("system-message", msg.text, by="operator"))
    return Message("user", frame("runtime-note", msg.text, about=msg.about, by="the runtime, not a person"))


def assistant_msg(message: Message, *, ts: int = 0, usage: Usage | None = None) -> AssistantMsg:
    """A model's answer as it is recorded: blocks other than text, byte for byte, in `opaque`; and its usage."""
    calls = tuple([_call(call) for call in message.tool_calls])
    blocks: Any = message.to_dict().get("blocks", ()) if message.blocks else ()
    return AssistantMsg(message.content, calls, tuple(blocks), ts, _reported(usage))


def _reported(usage: Usage | None) -> Reported | None:
    if usage is None or usage == Usage():
        return None
    return Reported(
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.cache_write_long_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.cost_usd,
    )


def usage_of(msg: AssistantMsg) -> Usage | None:
    """What the provider reported for an answer on record; None where that is not on record."""
    found = msg.usage
    if found is None:
        return None
    return Usage(
        found.fresh,
        found.output,
        found.usd,
        found.read,
        found.written,
        cache_write_long_tokens=found.long,
        reasoning_tokens=found.reasoning,
    )


def _call(call: ToolCall) -> Call:
    arguments = call.raw if call.raw is not None else thaw(call.arguments)
    return Call(call.id, call.name, arguments, meta=thaw(call.meta) if call.meta else None)


def result_text(content: Any) -> str:
    """What a model reads of a result: a text as it is, anything else as compact JSON."""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def source(entry: Entry, how: Mark | None = None, known: Known | None = None) -> Source:
    """The entry as a summariser gets it: who speaks, and what."""
    speakers = {"user": "user", "system": "operator", "assistant": "assistant", "tool": "tool", "note": "note"}
    body = entry.body
    if isinstance(body, (SystemMsg, NoteMsg)):
        # Without its frame: quotes and rules are looked up in the text itself.
        return Source(entry.n, speakers[entry.kind], body.text)
    return source_of(entry.n, entry_message(entry, how, known), speaker=speakers[entry.kind])


def _answer(msg: AssistantMsg) -> Message:
    if msg.opaque:
        # Blocks first, since only they have the order; text and calls alone where a later release wrote other blocks.
        calls = [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "meta": call.meta or {}}
            for call in msg.tool_calls
        ]
        with suppress(FormatError, ValueError, TypeError):
            return Message.from_dict({"role": "assistant", "blocks": list(msg.opaque), "tool_calls": calls})
    made = [ToolCall(call.id, call.name, call.arguments, meta=call.meta or {}) for call in msg.tool_calls]
    return Message("assistant", msg.text, tool_calls=made)


def _result(msg: ToolMsg, text: str) -> Message:
    blocks = [block for part in msg.parts if (block := _block(part)) is not None]
    content: Any = [TextBlock(text), *blocks] if blocks else text
    made = Message("tool", content, msg.name or None, msg.id, is_error=msg.is_error)
    if msg.state == "pending":
        return mark(made, "pending")
    return mark(made, "synthetic") if msg.state else made


def _plain(role: str, parts: Iterable[Part]) -> Message:
    return Message(role, [block for part in parts if (block := _block(part)) is not None])


def _block(part: Part) -> Any:
    if isinstance(part, TextPart):
        return TextBlock(part.text)
    if isinstance(part, DataPart):
        return TextBlock(result_text(part.data))
    if not isinstance(part, FilePart):
        return TextBlock("[a part of a kind that this release does not know]")
    address = part.uri or (f"artifact:{part.artifact}" if part.artifact else None)
    if address is None:
        return TextBlock(f"[file {part.name or 'without a name'}]")
    if (part.media_type or "").startswith("image/"):
        return ImageBlock(address, part.media_type)
    return DocumentBlock(address, part.media_type, part.name)


# Shortened


def _shortened(msg: Msg, n: int, how: Mark) -> Message:
    if how.how == "clamped":
        return _clamped(msg, n, how.value)
    if not isinstance(msg, ToolMsg):
        return message_of(msg)
    told: dict[str, Any] = {"masked": True, "entry": n, "tokens": how.value}
    if how.how == "superseded":
        told = {"superseded_by": how.value, "entry": n}
    return _result(msgspec.structs.replace(msg, parts=()), result_text(told))


def _clamped(msg: Msg, n: int, chars: int) -> Message:
    """Each part within `chars` characters; what was shortened says which entry has all of it."""
    if isinstance(msg, ToolMsg):
        return message_of(msgspec.structs.replace(msg, content=_clamped_content(msg.content, n, chars)))
    if isinstance(msg, UserMsg):
        return message_of(
            msgspec.structs.replace(msg, parts=tuple(_clamped_part(part, n, chars) for part in msg.parts))
        )
    if isinstance(msg, AssistantMsg):
        if msg.opaque:  # what a provider signed goes back as it came, or the provider refuses it
            return message_of(msg)
        calls = tuple(
            msgspec.structs.replace(call, arguments=_clamped_arguments(call.arguments, chars))
            for call in msg.tool_calls
        )
        return message_of(msgspec.structs.replace(msg, text=_clamped_text(msg.text, n, chars), tool_calls=calls))
    return message_of(msgspec.structs.replace(msg, text=_clamped_text(msg.text, n, chars)))


def _clamped_text(text: str, n: int, chars: int) -> str:
    if len(text) <= chars:
        return text
    return f"{clamp(text, chars)}\n[entry {n}, shortened: `{RECALL}` has all {len(text):,} characters]"


def _clamped_content(content: Any, n: int, chars: int) -> Any:
    if isinstance(content, str):
        return _clamped_text(content, n, chars)
    size = len(result_text(content))
    if size <= chars:
        return content
    return {"shortened": True, "entry": n, "characters": size, "content": clamp_json(content, chars)}


def _clamped_part(part: Part, n: int, chars: int) -> Part:
    if isinstance(part, TextPart):
        return TextPart(_clamped_text(part.text, n, chars))
    if isinstance(part, DataPart):
        return DataPart(_clamped_content(part.data, n, chars))
    return part


def _clamped_arguments(arguments: Any, chars: int) -> Any:
    if isinstance(arguments, str):
        parsed = ToolCall("", "", arguments)
        if len(arguments) <= chars:
            return arguments
        return clamp_json(thaw(parsed.arguments), chars)
    return clamp_json(arguments, chars)
