"""Call ids that are unique and well spelled. Touches only its arguments."""

from __future__ import annotations

from .rules import Spelling


class Ids:
    """Hands out ids that are unique and well spelled; which one depends on those handed out before alone."""

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling
        self._used: set[str] = set()
        self._next: dict[tuple[str, int], int] = {}
        self._calls = 0

    def of_call(self, given: str) -> str:
        """The id of the next call: its own, made to fit; one from its position where it has none."""
        self._calls += 1
        return self.unused(self._spelling.fit(given or f"call-{self._calls}"))

    def unused(self, base: str) -> str:
        """`base`, or with the first free number from 2 on."""
        if base not in self._used:
            self._used.add(base)
            return base
        digits = 1
        while True:
            # Numbers are counted per stem and length, so that no candidate is tried twice.
            numbered = self._spelling.numbered
            key = (numbered(base, 10**digits - 1)[:-digits], digits)
            number = self._next.get(key, max(2, 10 ** (digits - 1)))
            while number < 10**digits:
                candidate = numbered(base, number)
                number += 1
                if candidate not in self._used:
                    self._next[key] = number
                    self._used.add(candidate)
                    return candidate
            self._next[key] = number
            digits += 1
