"""Counters of prompt tokens. Each counts the same texts of a message and differs in the step from text to tokens.

Counts are kept on the messages, and sums of messages are sums of counts, so a context counts what was appended alone.
Touches its arguments; `TiktokenCounter` reads vocabulary files that are already on disk and never opens a socket.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from typing import Any, Protocol, runtime_checkable

from agentkit.core.contracts.blocks import (
    DocumentBlock,
    ImageBlock,
    NativeBlock,
    RedactedThinkingBlock,
    ThinkingBlock,
)
from agentkit.core.contracts.counting import SyncTokenCounter, TokenCounter
from agentkit.core.contracts.jsontext import json_text
from agentkit.core.contracts.messages import Message, derived
from agentkit.core.contracts.tokens import (
    ENCODED,
    OVERHEAD,
    document_tokens,
    estimate_message_tokens,
    estimate_request_tokens,
    image_tokens,
    native_text,
    weight,
)

__all__ = [
    "AdditiveCounter",
    "ApproxTokenCounter",
    "CharClassTokenCounter",
    "SyncTokenCounter",
    "TiktokenCounter",
    "TokenCounter",
    "char_class_tokens",
    "estimate_message_tokens",
    "estimate_request_tokens",
]


@runtime_checkable
class AdditiveCounter(Protocol):
    """A counter whose figure for a list follows from one pair of sums over its messages."""

    @property
    def key(self) -> str:
        """Names what `weigh` measures; counters of one key weigh alike."""
        ...

    def weigh(self, message: Message, /) -> tuple[int, int]: ...

    def settle(self, first: int, second: int, /) -> int:
        """Tokens of messages whose weights sum up to `first`, `second`."""
        ...


class _Additive:
    def weigh(self, message: Message, /) -> tuple[int, int]:
        raise NotImplementedError

    def settle(self, first: int, second: int, /) -> int:
        raise NotImplementedError

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


@dataclass(frozen=True)
class ApproxTokenCounter(_Additive):
    """Characters / 4 and a flat overhead: free, and within about 30 % for English.

    `chars_per_token` divides the characters only. `estimate` raises ValueError when it is not above 0.
    """

    chars_per_token: float = 4.0

    @property
    def key(self) -> str:
        return "approx"

    def weigh(self, message: Message, /) -> tuple[int, int]:
        w = weight(message)
        return w.chars, OVERHEAD * w.units + w.flat

    def settle(self, first: int, second: int, /) -> int:
        if not self.chars_per_token > 0:
            raise ValueError(f"chars_per_token must be above 0, not {self.chars_per_token}")
        return int(first // self.chars_per_token) + second


# The share of a token per character, by class, in 1/1200 so that sums are exact. Measured against o200k_base on texts
# of each kind; benchmarks/tokens.py prints the error.
_UNIT = 1_200
_PER_CHARACTER = {"hex": 696, "base64": 828, "han": 840, "kana": 864, "hangul": 840, "wide": 1_080, "cyrillic": 336,
                  "arabic": 444, "other": 960}  # fmt: skip


@cache
def _classes() -> re.Pattern[str]:
    return re.compile(
        r"(?P<hex>\b[0-9a-f]{32,}\b)"
        r"|(?P<base64>[A-Za-z0-9+/]{64,}={0,2})"
        r"|(?P<word>[A-ZÀ-Þ]?[a-zß-ɏ]+)"
        r"|(?P<caps>[A-Z]+)"
        r"|(?P<digits>[0-9]+)"
        r"|(?P<han>[㐀-鿿豈-﫿]+)"
        r"|(?P<kana>[぀-ヿ]+)"
        r"|(?P<hangul>[가-힯]+)"
        r"|(?P<wide>[　-〿＀-￯]+)"
        r"|(?P<cyrillic>[Ͱ-ԯ]+)"
        r"|(?P<arabic>[֐-ۿ]+)"
        r"|(?P<space>\s+)"
        r"|(?P<marks>[!-/:-@\[-`{-~\x00-\x08\x0e-\x1b\x7f]+)"
        r"|(?P<other>.)",
        re.DOTALL,
    )


def _class_units(text: str) -> int:
    units = 0
    for match in _classes().finditer(text):
        kind = match.lastgroup
        n = match.end() - match.start()
        if kind == "word":
            units += _UNIT if n <= 9 else _UNIT + (n - 9) * 300
        elif kind == "space":
            if n > 16:
                units += n * 75
            elif "\n" in match[0]:
                units += 840
            elif n > 1:
                units += _UNIT
        elif kind == "marks":
            units += _UNIT if n <= 3 else n * 480
        elif kind == "digits":
            units += _UNIT * ((n + 2) // 3)
        elif kind == "caps":
            units += _UNIT if n <= 3 else n * 500
        else:
            units += n * _PER_CHARACTER[kind or "other"]
    return units


def char_class_tokens(text: str) -> int:
    """Tokens of a text by character class; linear in its length."""
    return ceil(_class_units(text) / _UNIT)


@dataclass(frozen=True)
class CharClassTokenCounter(_Additive):
    """Counts by character class: near the real density of JSON, code, base64, CJK and other dense text as well.

    No dependency; a few MB a second, once per message. Flat overheads and block figures are those of the formula.
    """

    @property
    def key(self) -> str:
        return "char-class"

    def weigh(self, message: Message, /) -> tuple[int, int]:
        return derived(message, "_char_class", _weigh_by_class)

    def settle(self, first: int, second: int, /) -> int:
        return ceil(first / _UNIT) + second


def _weigh_by_class(message: Message) -> tuple[int, int]:
    texts, flat = _texts_and_flat(message)
    return sum(map(_class_units, texts)), flat


def _texts_and_flat(message: Message) -> tuple[list[str], int]:
    """The texts that the formula counts, and the tokens that do not depend on text."""
    flat = OVERHEAD * (1 + len(message.tool_calls))
    texts = [message.content, message.name or "", message.tool_call_id or ""]
    for call in message.tool_calls:
        texts += (call.id, call.name, json_text(call.arguments))
    for block in message.blocks:
        if isinstance(block, ThinkingBlock):
            texts.append(block.text)
        elif isinstance(block, RedactedThinkingBlock):
            texts.append(block.data[: len(block.data) * 3 // 4])
        elif isinstance(block, ImageBlock):
            flat += image_tokens(block)
        elif isinstance(block, DocumentBlock):
            flat += document_tokens(block)
        elif isinstance(block, NativeBlock):
            text, encoded = native_text(block.payload)
            texts.append(text)
            flat += ENCODED * encoded
    return [text for text in texts if text], flat


# SHA-1 of the addresses of the vocabulary files: the names under which tiktoken caches them.
_RANK_FILES = {
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
}
_PIECE = 2_000
"""Characters of a run of text, or of white space, that are encoded at once: byte-pair merging is quadratic in it."""


@dataclass(frozen=True)
class TiktokenCounter(_Additive):
    """Counts with tiktoken's vocabulary, exact for the models that use it; the approximation where it cannot.

    Needs the package (`arc-agentkit[fast]`) and the vocabulary file in tiktoken's cache folder, since the package would
    fetch a missing one from the network; `exact` tells whether both were found. Special-token text is ordinary text.
    """

    encoding: str = "cl100k_base"
    _encoder: Any = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_encoder", _load_encoder(self.encoding))

    def __reduce__(self) -> tuple[Any, ...]:
        return TiktokenCounter, (self.encoding,)

    @property
    def exact(self) -> bool:
        """Whether the real vocabulary counts, rather than the approximation."""
        return self._encoder is not None

    @property
    def key(self) -> str:
        return f"tiktoken:{self.encoding}" if self.exact else "approx"

    def weigh(self, message: Message, /) -> tuple[int, int]:
        if self._encoder is None:
            return ApproxTokenCounter().weigh(message)
        return derived(message, f"_{self.key}", self._weigh)

    def settle(self, first: int, second: int, /) -> int:
        return first + second if self._encoder is not None else ApproxTokenCounter().settle(first, second)

    def _weigh(self, message: Message) -> tuple[int, int]:
        texts, flat = _texts_and_flat(message)
        count = 0
        for text in texts:
            if not text.isascii():
                text = text.encode("utf-8", "replace").decode("utf-8")
            count += sum(len(self._encoder.encode_ordinary(piece)) for piece in _pieces(text))
        return count, flat


@cache
def _long_runs() -> re.Pattern[str]:
    return re.compile(rf"\S{{{_PIECE},}}|\s{{{_PIECE},}}")


def _pieces(text: str) -> Iterator[str]:
    start = 0
    for run in _long_runs().finditer(text):
        yield text[start : run.start()]
        for at in range(run.start(), run.end(), _PIECE):
            yield text[at : min(at + _PIECE, run.end())]
        start = run.end()
    yield text[start:]


def _load_encoder(encoding: str) -> Any:
    if encoding in _RANK_FILES and not os.path.isfile(_rank_file(encoding)):
        return None
    try:
        import tiktoken

        encoder = tiktoken.get_encoding(encoding) if encoding in _RANK_FILES else None
    except Exception:  # the design document demands a silent fallback; `exact` tells of it
        return None
    return encoder


def _rank_file(encoding: str) -> str:
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if variable in os.environ:
            return os.path.join(os.environ[variable], _RANK_FILES[encoding])
    from tempfile import gettempdir  # costs a tenth of this package's import, and few ask

    return os.path.join(gettempdir(), "data-gym-cache", _RANK_FILES[encoding])
