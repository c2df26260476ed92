"""Contexts to reduce: logs built line by line, and a reduction from plan to state as the runtime does it."""

from __future__ import annotations

from typing import Any

import msgspec

from agentd.context.compact import Applied, Declined, Plan, Work, apply, look, plan, plan_overflow
from agentd.context.messages import Shown
from agentd.context.record import (
    AssistantMsg,
    Call,
    ContextState,
    Control,
    Entry,
    Msg,
    NoteMsg,
    Pin,
    TextPart,
    ToolMsg,
    UserMsg,
    entry_of,
)
from agentd.context.scene import shown_messages
from agentd.context.settings import Reduction
from agentd.context.tokens import Conditions, Fixed, request_size
from agentd.context.view import of_state, view, with_view
from agentkit.state.compaction import Summary, extract

FOLDING = Reduction(mask_min_gain=100_000, mask_share=1.0)
"""The defaults without masking, so that a context over its trigger is folded."""


class Talk:
    """A context and its log, written to like a runtime writes."""

    def __init__(
        self, window: int = 4_000, settings: Reduction | None = None, fixed: Fixed | None = None, **conditions: Any
    ) -> None:
        self.settings = settings or FOLDING
        self.conditions = Conditions(window, fixed or Fixed(output=window // 10), **conditions)
        self.state = ContextState(id="c1", handled=0)
        self.log: list[Entry] = []
        self.work = Work()
        self.calls = 0

    def write(self, body: Msg | Control, **fields: Any) -> int:
        entry = entry_of(self.state.next, body, **fields)
        self.log.append(entry)
        self.state = with_view(self.state, view(self.log))
        return entry.n

    def user(self, text: str, **fields: Any) -> int:
        return self.write(UserMsg((TextPart(text),), "p"), **fields)

    def note(self, text: str) -> int:
        return self.write(NoteMsg(text))

    def answer(self, text: str) -> int:
        return self.write(AssistantMsg(text))

    def pin(self, n: int) -> None:
        self.write(Pin(n))

    def round(
        self, content: Any = "ok", *, name: str = "read", args: Any = None, state: str = "", error: bool = False
    ) -> int:
        """A call and its result; returns the result's number."""
        self.calls += 1
        call = Call(f"c{self.calls}", name, {"n": self.calls} if args is None else args)
        self.write(AssistantMsg("", (call,)))
        return self.write(ToolMsg(call.id, name, content, error, state))

    def exchange(self, n: int, size: int = 110) -> None:
        """A handled exchange: request, round, answer."""
        asked = self.user(f"question {n}: what is in item-{n}?")
        self.round(f"item-{n} says " + "word " * size)
        self.answer(f"answer {n} about item-{n}")
        self.state = msgspec.structs.replace(self.state, handled=asked, turns=self.state.turns + 1)

    def plan(self, **options: Any) -> Plan | Declined:
        scene = look(self.state, self.log, self.settings, self.conditions, work=self.work)
        return plan(scene, self.settings, self.conditions, **options)

    def overflow(self) -> Plan:
        scene = look(self.state, self.log, self.settings, self.conditions, work=self.work)
        return plan_overflow(scene, self.settings, self.conditions)

    def apply(self, made: Plan, delta: Summary | None = None, **options: Any) -> Applied | Declined:
        if delta is None and made.folds and made.delta is None:
            delta = extract(made.sources(self.log))
        done = apply(
            self.state, self.log, made, delta, self.settings, self.conditions, now=5, work=self.work, **options
        )
        if isinstance(done, Applied):
            self.log += done.entries
            self.state = done.state
            assert with_view(self.state, view(self.log)) == self.state, "the log and the row tell different views"
        return done

    def reduce(self, **options: Any) -> Applied:
        """Plan and apply; fails where either is declined."""
        made = self.plan(**options)
        assert isinstance(made, Plan), made
        done = self.apply(made)
        assert isinstance(done, Applied), done
        return done

    def shown(self) -> list[Shown]:
        return shown_messages(of_state(self.state), self.log, self.state.id, self.settings, self.conditions)

    def size(self) -> int:
        return request_size(self.shown(), self.conditions, anchor=self.state.anchor, version=self.state.version).tokens

    def text(self) -> str:
        return "\n".join(one.message.content for one in self.shown())

    def numbers(self) -> list[int]:
        """Entries in the view."""
        return [one.n for one in self.shown() if one.n is not None]
