"""What a context shows, carried on while it grows: its messages and what they measure. Touches only its arguments.

The view of one version changes by entries that are added at its end, so only those are looked at; anything else makes
all of it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agentkit.core.contracts.counting import SyncTokenCounter
from agentkit.core.contracts.messages import Message, marked
from agentkit.state.context.tokens import additive

from .messages import Known, Shown, entry_message
from .record import ContextState, Entry


class Showing:
    """The shown messages of one context. `entry`: an entry that is in memory, by number."""

    def __init__(self, counter: SyncTokenCounter, entry: Callable[[int], Entry | None], known: Known) -> None:
        self._counter, self._entry, self._known = counter, entry, known
        self._additive = additive(counter)
        self._key: tuple[object, ...] = ()
        self._last = 0
        self._shown: list[Shown] = []
        self._sums = (0, 0)

    def of(
        self,
        state: ContextState,
        bodies: Mapping[str, str],
        room: tuple[int, int | None],
        make: Callable[[], list[Shown]],
    ) -> list[Shown]:
        """The messages of the state's view, not to be changed. `room`: tokens of summary and constraints; `make`: makes
        all of them."""
        loaded = tuple(ref.hash in bodies for ref in state.skills)
        key = (state.version, id(state.view), id(state.summary), id(state.told), state.skills, loaded, room)
        tail = state.view.tail
        if key != self._key or tail is None:
            self._key, self._shown, self._last, self._sums = key, make(), state.next - 1, (0, 0)
            self._held = (state.view, state.summary, state.told)  # so that their ids stay theirs
            self._weigh(self._shown)
            return self._shown
        for n in range(self._last + 1, state.next):
            entry = self._entry(n)
            if entry is not None and entry.is_message and n >= tail:
                one = Shown(n, entry_message(entry, state.view.marks.get(n), self._known))
                self._shown.append(one)
                self._weigh([one])
        self._last = state.next - 1
        return self._shown

    def segments(self) -> dict[str, int]:
        """Tokens of summary, skills and tail of what `of` returned last, by plain estimate."""
        behind = [one.message for one in self._shown[:64] if one.n is None]
        summary = behind[:1] if behind and marked(behind[0], "summary") is not None else []
        return {
            "summary": self._measure(summary),
            "skills": self._measure(behind[len(summary) :]),
            "tail": self._tail(),
        }

    def since(self, n: int) -> int:
        """Tokens of the messages of entries behind `n`, by plain estimate."""
        found: list[Message] = []
        for one in reversed(self._shown):
            if one.n is None or one.n <= n:
                break
            found.append(one.message)
        return self._measure(found)

    def _tail(self) -> int:
        if self._additive is None:
            return self._measure([one.message for one in self._shown if one.n is not None])
        return self._additive.settle(*self._sums)

    def _measure(self, messages: Sequence[Message]) -> int:
        return self._counter.measure(messages) if messages else 0

    def _weigh(self, shown: Sequence[Shown]) -> None:
        if self._additive is None:
            return
        first, second = self._sums
        for one in shown:
            if one.n is not None:
                a, b = self._additive.weigh(one.message)
                first, second = first + a, second + b
        self._sums = first, second
