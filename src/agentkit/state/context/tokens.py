"""Counters of prompt tokens. Each counts the same texts of a message and differs in the step from text to tokens.

Counts are kept on the messages, and sums of messages are sums of counts, so a context counts what was appended alone.
Touches only its arguments; counters with a real vocabulary are in `exact`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import ceil, inf

from agentkit.core.contracts.counting import SyncTokenCounter, TokenCounter
from agentkit.core.contracts.messages import Message, derived
from agentkit.core.contracts.tokens import (
    OVERHEAD,
    counted_parts,
    estimate_message_tokens,
    estimate_request_tokens,
    weight,
)

from .media import media_slack, media_tokens
from .model_facts import ImageRule, image_rule

__all__ = [
    "AdditiveCounter",
    "ApproxTokenCounter",
    "CharClassTokenCounter",
    "SyncTokenCounter",
    "TokenCounter",
    "additive",
    "char_class_tokens",
    "estimate_message_tokens",
    "estimate_request_tokens",
]


class AdditiveCounter:
    """Base of counters whose figure for a list follows from one pair of sums over its messages.

    Such a counter says what one message weighs and what tokens the sums make.
    """

    @property
    def key(self) -> str:
        """Names what `weigh` measures."""
        raise NotImplementedError

    def weigh(self, message: Message, /) -> tuple[int, int]:
        """What one message adds to the two sums."""
        raise NotImplementedError

    def settle(self, first: int, second: int, /) -> int:
        """Tokens of messages whose weights sum up to `first`, `second`."""
        raise NotImplementedError

    def slack(self, message: Message, /) -> int:
        """Tokens that a message may take beyond what it is counted as, because it holds what nobody can count: the
        pages of a document. An upper bound adds them."""
        return 0

    def measure(self, messages: Sequence[Message], /) -> int:
        """Tokens of `messages`; 0 for none. Never raises on odd content."""
        first = second = 0
        for message in messages:
            a, b = self.weigh(message)
            first += a
            second += b
        return self.settle(first, second)

    async def estimate(self, messages: Sequence[Message], /) -> int:
        """`measure`, for callers that await any counter."""
        return self.measure(messages)


def additive(counter: TokenCounter) -> AdditiveCounter | None:
    """`counter`, if sums of weights give what its `measure` and `estimate` give: a subclass may have its own."""
    if not isinstance(counter, AdditiveCounter):
        return None
    kind = type(counter)
    whole = kind.measure is AdditiveCounter.measure and kind.estimate is AdditiveCounter.estimate
    return counter if whole else None


@dataclass(frozen=True)
class ApproxTokenCounter(AdditiveCounter):
    """Characters / 4 and a flat overhead: free, and within about 30 % for English.

    `chars_per_token` divides the characters only. `estimate` raises ValueError when it is not above 0 and finite.
    """

    chars_per_token: float = 4.0

    @property
    def key(self) -> str:
        return "approx"

    def weigh(self, message: Message, /) -> tuple[int, int]:
        w = weight(message)
        return w.chars, OVERHEAD * w.units + w.flat

    def settle(self, first: int, second: int, /) -> int:
        if not 0 < self.chars_per_token < inf:
            raise ValueError(f"chars_per_token must be above 0 and finite, not {self.chars_per_token}")
        return int(first // self.chars_per_token) + second


# The share of a token per character, by class, in 1/1200 so that sums are exact. Measured against o200k_base on texts
# of each kind; benchmarks/tokens.py prints the error.
_UNIT = 1_200
_PER_CHARACTER = {"hex": 696, "base64": 828, "han": 840, "kana": 864, "hangul": 840, "wide": 1_080, "cyrillic": 336,
                  "arabic": 444, "other": 960}  # fmt: skip


@cache
def _classes() -> re.Pattern[str]:
    # Ranges by number: some of their ends look, and normalise, like characters from elsewhere.
    return re.compile(
        r"(?P<hex>\b[0-9a-f]{32,}\b)"
        r"|(?P<base64>[A-Za-z0-9+/]{64,}={0,2})"
        r"|(?P<word>[A-Z\u00c0-\u00de]?[a-z\u00df-\u024f]+)"
        r"|(?P<caps>[A-Z]+)"
        r"|(?P<digits>[0-9]+)"
        r"|(?P<han>[\u3400-\u9fff\uf900-\ufaff]+)"
        r"|(?P<kana>[\u3040-\u30ff]+)"
        r"|(?P<hangul>[\uac00-\ud7af]+)"
        r"|(?P<wide>[\u3000-\u303f\uff00-\uffef]+)"
        r"|(?P<cyrillic>[\u0370-\u052f]+)"
        r"|(?P<arabic>[\u0590-\u06ff]+)"
        r"|(?P<space>\s+)"
        r"|(?P<marks>[!-/:-@\[-`{-~\x00-\x08\x0e-\x1b\x7f]+)"
        r"|(?P<other>.)",
        re.DOTALL,
    )


_MAX_SHORT = 31
"""Characters of the longest piece whose class follows from its own text; from 32 on its neighbours may count."""
_MAX_KNOWN = 32_768
"""Distinct pieces whose units stay in memory: words return, and looking one up is far cheaper than measuring it."""


_MAX_AT_ONCE = 262_144
"""Characters of the longest text whose pieces are all in memory at once."""


@cache
def _short_pieces() -> re.Pattern[str]:
    # The classes of a text without long runs, where hex and base64 cannot be: the same pieces as `_classes` gives, with
    # the frequent ones tried first, which takes half the time. White space may not begin with a wide form.
    return re.compile(
        r"[a-z\u00df-\u024f]+|[^\S\u3000]\s*|[A-Z\u00c0-\u00de][a-z\u00df-\u024f]+"
        r"|[!-/:-@\[-`{-~\x00-\x08\x0e-\x1b\x7f]+|[0-9]+|[A-Z]+|[\u3400-\u9fff\uf900-\ufaff]+|[\u3040-\u30ff]+"
        r"|[\uac00-\ud7af]+|[\u3000-\u303f\uff00-\uffef]+|[\u0370-\u052f]+|[\u0590-\u06ff]+|.",
        re.DOTALL,
    )


def _pieces_by_class(text: str) -> Iterable[str]:
    if len(text) <= _MAX_AT_ONCE:
        return _short_pieces().findall(text)
    return (match[0] for match in _short_pieces().finditer(text))


@cache
def _has_long() -> Callable[[str], object]:
    return re.compile(rf"[A-Za-z0-9+/]{{{_MAX_SHORT + 1}}}").search


class _Known(dict[str, int]):
    """Units by piece, measured when one is met first."""

    def __missing__(self, piece: str) -> int:
        match = _classes().fullmatch(piece)
        units = 0 if match is None else _units_of(match)
        if len(piece) <= _MAX_SHORT:
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[piece] = units
        return units


_known = _Known()


def _class_units(text: str) -> int:
    if not text:
        return 0
    # Splitting is cheaper than searching, and settles it for most texts.
    if max(map(len, text.split()), default=0) > _MAX_SHORT and _has_long()(text) is not None:
        return sum(map(_units_of, _classes().finditer(text)))
    return sum(map(_known.__getitem__, _pieces_by_class(text)))


def _units_of(match: re.Match[str]) -> int:
    kind = match.lastgroup
    n = match.end() - match.start()
    if kind == "word":
        return _UNIT if n <= 9 else _UNIT + (n - 9) * 300
    if kind == "space":
        if n > 16:
            return n * 75
        if "\n" in match[0]:
            return 840
        return _UNIT if n > 1 else 0
    if kind == "marks":
        return _UNIT if n <= 3 else n * 480
    if kind == "digits":
        return _UNIT * ((n + 2) // 3)
    if kind == "caps":
        return _UNIT if n <= 3 else n * 500
    return n * _PER_CHARACTER[kind or "other"]


def char_class_tokens(text: str) -> int:
    """Tokens of a text by character class; linear in its length."""
    return ceil(_class_units(text) / _UNIT)


class MediaRules(AdditiveCounter):
    """Base of counters that count images and documents as a model's provider does."""

    _rule: ImageRule | None

    def parts(self, message: Message) -> tuple[list[str], int, int]:
        """`counted_parts` by this counter's rule."""
        rule = self._rule
        return counted_parts(message) if rule is None else counted_parts(message, lambda b: media_tokens(b, rule))

    def slack(self, message: Message, /) -> int:
        return media_slack(message, self._rule)


@dataclass(frozen=True)
class CharClassTokenCounter(MediaRules):
    """Counts by character class: near the real density of JSON, code, base64, CJK and other dense text as well.

    No dependency; a few MB a second, once per message. Overheads are those of the formula. With a `model`, images and
    documents count by the rules of its provider, else, and for a model that nobody knows, by the formula's figures.
    """

    model: str | None = None
    _rule: ImageRule | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rule", image_rule(self.model))

    @property
    def key(self) -> str:
        return "char-class" if self._rule is None else f"char-class:{self._rule.name}"

    def weigh(self, message: Message, /) -> tuple[int, int]:
        # Of most messages all rules make the same, so one figure serves them all.
        if self._rule is None or not message.blocks:
            return derived(message, "_char_class", _weigh_by_class)
        return derived(message, f"_{self.key}", self._weigh)

    def settle(self, first: int, second: int, /) -> int:
        return ceil(first / _UNIT) + second

    def _weigh(self, message: Message) -> tuple[int, int]:
        texts, units, flat = self.parts(message)
        return sum(map(_class_units, texts)), OVERHEAD * units + flat


def _weigh_by_class(message: Message) -> tuple[int, int]:
    texts, units, flat = counted_parts(message)
    return sum(map(_class_units, texts)), OVERHEAD * units + flat
