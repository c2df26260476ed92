"""What a provider is sent of a transcript: checked, repaired, and where each message ended up.

Touches only its arguments. The record stays as it is; a view is made anew for each request, of the same objects
wherever nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, is_
from typing import Any, NamedTuple

from agentkit.core.contracts.framing import frame
from agentkit.core.contracts.types import Block, CallMark, Message, TextBlock, ToolCall, mark

from .mending import LEADING, RESULT, Item
from .pairing import NOTHING, Entry, Pairing, Part, Slot, Turn
from .problems import (
    FIRST,
    MEDIA_OF_REPLY,
    MEDIA_OF_SYSTEM,
    STAND_IN,
    UNNAMED_TOOL,
    Problem,
    media_of_result,
)
from .rules import STRICT, Rules
from .single import PENDING


class Repaired(NamedTuple):
    """A view, what was changed for it, and where the input went.

    `places[i]`: where the first `i` input messages end, as the index of a message of the view and the number of its
    items (`Message.ordered`) in front of that place; (0, 0) where nothing is in front. What was put in at the end of a
    turn counts to the last message of that turn.
    """

    messages: tuple[Message, ...]
    changes: tuple[Problem, ...]
    places: tuple[tuple[int, int], ...]


def repair(messages: Iterable[Message], rules: Rules = STRICT, *, prefix: int | None = None) -> Repaired:
    """A view of `messages` that `rules` accept; untouched messages are the same objects, and so is an untouched tuple.

    Pure, idempotent, linear in the length. Never raises on content; TypeError for anything but Messages. `prefix`: how
    many messages at the start may be standing system text (None: all of the leading run), so that system text at the
    head of a transcript does not join the prompt in front of it.

    For a transcript x + y, where x does not end on an assistant message and y begins with one, the items of the view
    of x are the first items of the view of x + y: what a provider has cached stays as it was. The one exception is a
    result in y, not marked `late`, of a call in x that had none or an interim one.
    """
    given = messages if isinstance(messages, tuple) else tuple(messages)
    pairing = Pairing(given, rules, len(given) if prefix is None else prefix)
    view = _View(pairing, len(given))
    for turn in pairing.turns:
        view.add_turn(turn)
    changes = tuple(sorted(pairing.problems, key=attrgetter("index")))
    return Repaired(view.messages() if changes else given, changes, view.places())


def check(messages: Iterable[Message], rules: Rules = STRICT, *, prefix: int | None = None) -> tuple[Problem, ...]:
    """Everything that `rules` do not accept in `messages`, by place; empty for a valid transcript.

    What is wrong is what `repair` would change, so the two cannot part company. A transcript of nothing but system text
    is valid (`require_request`).
    """
    return repair(messages, rules, prefix=prefix).changes


def open_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls that somebody still owes an answer, in order and by identity.

    These are calls of the last assistant turn without a result, and calls anywhere with nothing but a `pending` one.
    Any other call without a result is dead: its turn is over, and nobody runs it.
    """
    turns = Pairing(tuple(messages), STRICT, len(messages)).turns
    return tuple(
        slot.call
        for turn in turns
        for slot in turn.slots
        if slot.rank == PENDING or (slot.rank == NOTHING and turn is turns[-1])
    )


def answered(messages: Sequence[Message]) -> tuple[tuple[int, int], ...]:
    """Which message answers which: (index of the call's message, index of its result's), a pair per answered call.

    The result is the one that a view shows for the call: whoever cuts between the two parts them.
    """
    return tuple(
        (slot.index, slot.entry.index)
        for turn in Pairing(tuple(messages), STRICT, len(messages)).turns
        for slot in turn.slots
        if slot.entry is not None
    )


class _Made:
    """One message of the view. `more`: what it is joined with; `size`: items in it."""

    __slots__ = ("first", "more", "size")

    def __init__(self, message: Message) -> None:
        self.first, self.size = message, 0
        self.more: list[Message] | None = None


class _View:
    """The view of a pairing, built turn by turn."""

    def __init__(self, pairing: Pairing, length: int) -> None:
        self._pairing, self._rules = pairing, pairing.rules
        self._made: list[_Made] = []
        self._ends: list[tuple[int, int]] = [(0, 0)] * (length + 1)
        self._begun = False

    def add_turn(self, turn: Turn) -> None:
        leading = [] if turn.parts else [entry for entry in turn.gap if entry.piece.kind == LEADING]
        for entry in leading:
            if not entry.piece.empty:
                self._add(self._pairing.message_of(entry), entry.index)
        for part in turn.parts:
            self._add_part(part)
        if turn.slots:
            self._add_results(turn)
        for part in turn.parts:
            self._add_media(part, MEDIA_OF_REPLY)
        for entry in leading:
            self._add_media(entry, MEDIA_OF_SYSTEM)
        self._add_texts(turn)
        self._end(turn.last_index)

    def messages(self) -> tuple[Message, ...]:
        return tuple([made.first if made.more is None else joined(made.first, made.more) for made in self._made])

    def places(self) -> tuple[tuple[int, int], ...]:
        ends = self._ends
        for at in range(1, len(ends)):
            if ends[at] < ends[at - 1]:
                ends[at] = ends[at - 1]
        return tuple(ends)

    # The steps of a turn

    def _add_part(self, part: Part) -> None:
        message = self._pairing.message_of(part)
        if part.items is not None:
            if part.items:
                self._add(_with_items(message, part.items), part.index)
        elif not part.piece.empty:
            self._add(message, part.index)

    def _add_results(self, turn: Turn) -> None:
        answered = [slot for slot in turn.slots if slot.entry is not None]
        answered.sort(key=attrgetter("order"))
        for slot in answered:
            if slot.entry is not None:
                self._add_result(slot, slot.entry)
        for slot in turn.slots:
            if slot.entry is None:
                self._pairing.report("unanswered", slot.index, slot.call.id, "a fixed result stands in")
                self._add(_stand_in(slot, self._rules), None)
        for slot in answered:
            if slot.entry is not None:
                self._add_media(slot.entry, media_of_result(slot.call_id))

    def _add_result(self, slot: Slot, entry: Entry) -> None:
        message = self._pairing.message_of(entry)
        if message.tool_call_id != slot.call_id:
            if (message.tool_call_id or "") != slot.call.id or not slot.call.id:
                detail = "paired by name or order"
            else:
                detail = "follows its call"
            self._pairing.report("id", entry.index, message.tool_call_id, f"{detail}: sent as {slot.call_id}")
            message = replace(message, tool_call_id=slot.call_id)
        self._add(message, entry.index)

    def _add_media(self, source: Part | Entry, label: str) -> None:
        if source.piece.media:
            self._add(Message("user", None, blocks=[TextBlock(label), *source.piece.media]), source.index, put_in=True)

    def _add_texts(self, turn: Turn) -> None:
        last_result = -1
        for at, entry in enumerate(turn.gap):
            if entry.slot is not None and entry.slot.entry is entry and entry.slot.turn is turn:
                last_result = at
        for at, entry in enumerate(turn.gap):
            piece = entry.piece
            if piece.kind == LEADING or (piece.kind == RESULT and (entry.slot is None or not piece.late)):
                continue
            if at < last_result and not (piece.empty and not piece.media):
                self._pairing.report("moved", entry.index, None, "behind the results of its turn")
            if entry.slot is not None:
                self._add(self._told(entry, entry.slot), entry.index)
                continue
            if not piece.empty:
                self._add(self._pairing.message_of(entry), entry.index)
            self._add_media(entry, MEDIA_OF_SYSTEM)

    def _told(self, entry: Entry, slot: Slot) -> Message:
        """A late result as user text: its place in the batch is taken by what was sent."""
        message, tool = self._pairing.message_of(entry), self._rules.tool_names.fit(slot.call.name or UNNAMED_TOOL)
        failed = "true" if message.is_error else None
        text = frame("late-tool-result", message.content, call=slot.call_id, tool=tool, error=failed)
        others = [block for block in message.blocks if not isinstance(block, (TextBlock, CallMark))]
        return Message("user", None, blocks=[TextBlock(text), *others, *entry.piece.media])

    # Messages and places

    def _add(self, message: Message, index: int | None, put_in: bool = False) -> None:
        """The next message of the view; `put_in`: not the input's own, so that joining it is no news."""
        role, made = message.role, self._made
        if not self._begun and role not in ("system", "developer"):
            self._begun = True
            if role != "user":
                self._pairing.report("first", index or 0, None, "a fixed user message stands in front")
                self._add(Message("user", FIRST), None)
        joins = role == "assistant" or (role == "user" and self._rules.alternation)
        if joins and made and made[-1].first.role == role:
            last = made[-1]
            if last.more is None:
                last.more = []
            last.more.append(message)
            if index is not None and not put_in:
                self._pairing.problems.append(joining(role, index))
        else:
            last = _Made(message)
            made.append(last)
        last.size += _size(message)
        if index is not None:
            self._end(index)

    def _end(self, index: int) -> None:
        if self._made:
            place = (len(self._made) - 1, self._made[-1].size)
            if place > self._ends[index + 1]:
                self._ends[index + 1] = place


def _size(message: Message) -> int:
    if not message.blocks:
        return bool(message.content) + len(message.tool_calls)
    return len(message.blocks) - sum(isinstance(b, CallMark) for b in message.blocks) + len(message.tool_calls)


def _with_items(message: Message, items: Sequence[Item]) -> Message:
    return Message(message.role, None, message.name, blocks=items, meta=message.meta)


def joining(role: str, index: int) -> Problem:
    """What is reported of a message that is joined with the one in front."""
    return Problem("same-role", index, None, f"joined with the {role} message in front")


def joined(first: Message, more: Sequence[Message]) -> Message:
    """One message of several; known again on the next request, so that nothing is read or hashed anew.

    It keeps the first name, which earlier requests carried, and of `meta` our own marks: what a provider said of one
    response does not hold for two.
    """
    parts = (first, *more)
    # Kept without `first`, on which it is kept: no cycle.
    known: tuple[Sequence[Message], Message] | None = first.__dict__.get("_joined")
    if known is not None and len(known[0]) == len(more) and all(map(is_, known[0], more)):
        return known[1]
    items: list[Block | ToolCall] = [item for part in parts for item in part.ordered]
    marks: dict[str, Any] = {}
    for part in parts:
        found = part.meta.get("agentkit")
        if isinstance(found, Mapping):
            marks.update(found)
    meta = {"agentkit": marks} if marks else {}
    joined = Message(first.role, None, first.name, blocks=items, meta=meta)
    first.__dict__["_joined"] = (tuple(more), joined)
    return joined


def _stand_in(slot: Slot, rules: Rules) -> Message:
    name = rules.tool_names.fit(slot.call.name or UNNAMED_TOOL)
    return mark(Message("tool", STAND_IN, name, slot.call_id, is_error=True), "synthetic")
