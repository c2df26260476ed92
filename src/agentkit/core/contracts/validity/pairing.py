"""Which result answers which call, and under which id. Touches only its arguments.

A transcript is read from front to back, and nothing read earlier is judged anew but for a result that comes late:
so what was sent keeps its bytes when the transcript grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import is_

from agentkit.core.contracts.types import Message, NativeBlock, ToolCall

from . import native
from .ids import Ids
from .mending import ASSISTANT, RESULT, Item
from .problems import Problem
from .rules import Rules
from .server import pair_server_calls
from .single import FINAL, SYNTHETIC, Piece, is_reasoning, is_thought, own

NOTHING = SYNTHETIC - 1
"""The rank of a call without any result, below that of the least of them."""


class Slot:
    """A call and what answers it. `rank` is that of the best result so far, shown in place or told later on as text;
    `entry` is the one shown in place, None where a stand-in is needed; `order` its place among its siblings, which a
    better result takes over from the one it displaces."""

    __slots__ = ("call", "call_id", "entry", "index", "order", "rank", "turn")

    def __init__(self, call: ToolCall, call_id: str, index: int, turn: Turn) -> None:
        self.call, self.call_id, self.index, self.turn = call, call_id, index, turn
        self.rank = NOTHING
        self.entry: Entry | None = None
        self.order = 0


class Entry:
    """A piece in its place behind a turn. `slot`: the call that a result answers, None for one that is left out;
    `arrival`: its number among all pieces."""

    __slots__ = ("arrival", "index", "piece", "slot")

    def __init__(self, index: int, piece: Piece, arrival: int) -> None:
        self.index, self.piece, self.arrival = index, piece, arrival
        self.slot: Slot | None = None


class Part:
    """One message of an assistant's turn. `items`: what is sent of it; None where that is the piece as it is."""

    __slots__ = ("index", "items", "piece")

    def __init__(self, index: int, piece: Piece) -> None:
        self.index, self.piece = index, piece
        self.items: list[Item] | None = None


class Bucket:
    """Calls that the same name or id may mean, in order.

    Each of the pointers moves forward only, since ranks never fall: any number of results is dealt out in time linear
    in calls and results.
    """

    __slots__ = ("_at", "slots", "turn")

    def __init__(self, turn: Turn, slots: list[Slot] | None = None) -> None:
        self.turn = turn
        self.slots: list[Slot] = [] if slots is None else slots
        self._at = [0] * (FINAL + 1)

    def pick(self, rank: int) -> Slot | None:
        """The first call without a result, else the first whose result is worth less than `rank`."""
        return self._below(SYNTHETIC) or self._below(rank)

    def _below(self, rank: int) -> Slot | None:
        at = self._at[rank]
        while at < len(self.slots) and self.slots[at].rank >= rank:
            at += 1
        self._at[rank] = at
        return self.slots[at] if at < len(self.slots) else None


class Turn:
    """A group of adjacent assistant messages and its gap, which is everything up to the next one; the first turn has no
    group. `last_index` is that of the last message that belongs here."""

    __slots__ = ("_by_name", "gap", "last_index", "parts", "slots")

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.gap: list[Entry] = []
        self.slots: list[Slot] = []
        self.last_index = -1
        self._by_name: dict[str, Bucket] | None = None

    def named(self, name: str | None) -> Bucket | None:
        """The calls of the tool `name`."""
        if self._by_name is None:
            self._by_name = {}
            for slot in self.slots:
                self._by_name.setdefault(slot.call.name, Bucket(self)).slots.append(slot)
        return self._by_name.get(name) if name else None


class Pairing:
    """The turns of a transcript with every result dealt out, and the problems met on the way."""

    def __init__(self, messages: Sequence[Message], rules: Rules, prefix: int) -> None:
        self.messages, self.rules, self._prefix = messages, rules, prefix
        self.problems: list[Problem] = []
        self.turns: list[Turn] = [Turn()]
        self._ids = Ids(rules.ids)
        self._latest: dict[str, Bucket] = {}
        self._read()

    def report(self, code: str, index: int, call_id: str | None, detail: str) -> None:
        self.problems.append(Problem(code, index, call_id, detail))

    def message_of(self, part: Part | Entry) -> Message:
        """The message of a piece, before ids and neighbours are seen to."""
        return part.piece.message or self.messages[part.index]

    def items_of(self, part: Part) -> Sequence[Item]:
        """What is sent of a part, so far."""
        return self.message_of(part).ordered if part.items is None else part.items

    def _read(self) -> None:
        rules, turn, leading, arrivals = self.rules, self.turns[0], True, 0
        for index, message in enumerate(self.messages):
            if not isinstance(message, Message):
                raise TypeError(f"messages[{index}] must be a Message, not {type(message).__name__}")
            leading = leading and index < self._prefix and message.role in ("system", "developer")
            pieces, notes = own(message, rules, leading)
            for code, call_id, detail in notes:
                self.report(code, index, call_id, detail)
            for piece in pieces:
                if piece.kind == ASSISTANT:
                    if turn.gap or len(self.turns) == 1:
                        self._close_gap(turn)
                        turn = Turn()
                        self.turns.append(turn)
                    turn.parts.append(Part(index, piece))
                else:
                    if turn.parts and not turn.gap:
                        self._close_group(turn, paused=False)
                    turn.gap.append(Entry(index, piece, arrivals))
                    arrivals += 1
            turn.last_index = index
        if turn.parts and not turn.gap:
            # What answers its calls or moves behind it makes it a turn that is over.
            self._close_group(turn, paused=not any(part.piece.calls or part.piece.media for part in turn.parts))
        self._close_gap(turn)

    # The assistant's side of a turn

    def _close_group(self, turn: Turn, paused: bool) -> None:
        if len(turn.parts) > 1 or turn.parts[0].piece.knotty:
            self._settle(turn, paused)
        for part in turn.parts:
            if part.piece.calls:
                self._identify(turn, part)

    def _settle(self, turn: Turn, paused: bool) -> None:
        """Sees to what depends on the rest of the turn: server-side calls, and thinking that leads nowhere."""
        flat = [(part, item) for part in turn.parts for item in self.items_of(part)]
        items = [item for _, item in flat]
        dropped: dict[int, tuple[str, str]] = {}
        renamed: dict[int, NativeBlock] = {}
        if self.rules.server_calls:
            pairs, dropped = pair_server_calls(items, paused)
            for at, item in enumerate(items):
                if at not in dropped and isinstance(item, NativeBlock) and native.is_server_call(item):
                    self._number(flat, at, pairs.get(at), renamed)
        self._drop_thoughts(items, dropped)
        if not dropped and not renamed:
            return
        for part in turn.parts:
            part.items = []
        for at, (part, item) in enumerate(flat):
            code, detail = dropped.get(at, ("", ""))
            if code:
                self.report(code, part.index, None, detail)
            if at not in dropped and part.items is not None:
                part.items.append(renamed.get(at, item))
        for part in turn.parts:
            self._settled(part)

    def _settled(self, part: Part) -> None:
        before = self.message_of(part).ordered
        if part.items is not None and len(part.items) == len(before) and all(map(is_, part.items, before)):
            part.items = None
        elif not part.items:
            self.report("empty", part.index, None, "message left out")

    def _drop_thoughts(self, items: Sequence[Item], dropped: dict[int, tuple[str, str]]) -> None:
        """Marks thoughts that nothing follows. A message of nothing else goes whole, which has a code of its own."""
        rules = self.rules
        solid = -1
        for at, item in enumerate(items):
            if at not in dropped and not is_thought(item, rules) and not is_reasoning(item, rules):
                solid = at
        for at in range(solid + 1, len(items)):
            if is_reasoning(items[at], rules):
                dropped[at] = "reasoning", "nothing follows it: left out"
            elif at not in dropped and (rules.signed_thinking or solid < 0):
                dropped[at] = "thinking" if solid >= 0 else "", "nothing follows it: left out"

    def _number(
        self, flat: Sequence[tuple[Part, Item]], at: int, result: int | None, renamed: dict[int, NativeBlock]
    ) -> None:
        """Gives the server-side call at a place, and its result, an id that no call has had before."""
        part, call = flat[at]
        given = native.server_id(call) if isinstance(call, NativeBlock) else None
        if given is None:
            return
        new = self._ids.unused(given)
        if new == given:
            return
        self.report("id", part.index, given, "repeated: numbered")
        for place in (at,) if result is None else (at, result):
            block = flat[place][1]
            if isinstance(block, NativeBlock):
                renamed[place] = native.with_server_id(block, new)

    def _identify(self, turn: Turn, part: Part) -> None:
        """Gives each call of a part its slot and its id."""
        renamed: list[str] = []
        changed = False
        for call in part.piece.calls:
            call_id = self._ids.of_call(call.id)
            renamed.append(call_id)
            if call_id != call.id:
                changed = True
                self.report("id", part.index, call.id, f"sent as {call_id}")
            slot = Slot(call, call_id, part.index, turn)
            turn.slots.append(slot)
            bucket = self._latest.get(call.id)
            if bucket is None or bucket.turn is not turn:
                bucket = self._latest[call.id] = Bucket(turn)
            bucket.slots.append(slot)
        if changed:
            names = iter(renamed)
            part.items = [
                replace(item, id=next(names)) if isinstance(item, ToolCall) else item for item in self.items_of(part)
            ]

    # Its results

    def _close_gap(self, turn: Turn) -> None:
        """Deals out the results of a gap: those with an id, then those with a name, then the rest in order."""
        results = [entry for entry in turn.gap if entry.piece.kind == RESULT]
        if not results:
            return
        nameless = []
        everything = Bucket(turn, turn.slots)
        for entry in results:
            if entry.piece.call_id:
                self._answer(turn, entry, self._latest.get(entry.piece.call_id))
        for entry in results:
            if not entry.piece.call_id:
                bucket = turn.named(entry.piece.name)
                if bucket is None:
                    nameless.append(entry)
                else:
                    self._answer(turn, entry, bucket)
        for entry in nameless:
            self._answer(turn, entry, everything)

    def _answer(self, turn: Turn, entry: Entry, bucket: Bucket | None) -> None:
        piece, index = entry.piece, entry.index
        if bucket is None or not bucket.slots:
            self.report("orphan", index, piece.call_id or None, "no such call before it: left out")
            return
        slot = bucket.pick(piece.rank)
        if slot is None:
            self.report("duplicate", index, piece.call_id or None, "its call has a result: left out")
            return
        entry.slot, slot.rank = slot, piece.rank
        if piece.late:
            self.report("late", index, slot.call.id, "told as user text where it stands")
            return
        if slot.entry is None:
            slot.order = entry.arrival
        else:
            self.report("duplicate", slot.entry.index, slot.call.id, "a better result came: left out")
        slot.entry = entry
        if slot.turn is not turn:
            self.report("late", index, slot.call.id, "moved behind its call")
