"""Counters with a real vocabulary, offline: `ExactTokenCounter`, whose vocabularies are compiled into the package that
it needs, and `TiktokenCounter`, which reads vocabulary files that are already on disk. Neither opens a socket.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any

from agentkit.core.contracts.errors import MissingExtraError
from agentkit.core.contracts.messages import Message, derived
from agentkit.core.contracts.surrogates import replace_surrogates
from agentkit.core.contracts.tokens import OVERHEAD, counted_parts

from .model_facts import ImageRule, encoding_of, image_rule
from .tokens import AdditiveCounter, ApproxTokenCounter, CharClassTokenCounter, MediaRules

ENCODINGS = ("cl100k_base", "o200k_base", "o200k_harmony", "qwen3.5")
"""The vocabularies of toktok-rs 0.3.0 that give exact counts."""


@dataclass(frozen=True)
class ExactTokenCounter(MediaRules):
    """Counts with a vocabulary, at some 100 MB a second: exact for texts of the models that use it. Flat overheads for
    messages and calls are the formula's, since providers publish none.

    `exact` tells whether the figure may be taken for the provider's: with a `model`, whether that one is known to count
    with this vocabulary. Images and documents count by the rules of the model's provider. Special-token text is
    ordinary text. Raises MissingExtraError without toktok-rs (`arc-agentkit[tokens]`), ValueError for an encoding that
    it has not.
    """

    encoding: str = "o200k_base"
    model: str | None = None
    _count: Any = field(default=None, init=False, repr=False, compare=False)
    _rule: ImageRule | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.encoding not in ENCODINGS:
            raise ValueError(f"unknown encoding {self.encoding!r}; known are {', '.join(ENCODINGS)}")
        object.__setattr__(self, "_count", _counting())
        object.__setattr__(self, "_rule", image_rule(self.model))

    def __reduce__(self) -> tuple[Any, ...]:
        return ExactTokenCounter, (self.encoding, self.model)

    @property
    def exact(self) -> bool:
        return self.model is None or encoding_of(self.model) == self.encoding

    @property
    def key(self) -> str:
        rule = "" if self._rule is None else f":{self._rule.name}"
        return f"exact:{self.encoding}{rule}"

    def weigh(self, message: Message, /) -> tuple[int, int]:
        return derived(message, f"_{self.key}", self._weigh)

    def settle(self, first: int, second: int, /) -> int:
        return first + second

    def _weigh(self, message: Message) -> tuple[int, int]:
        texts, units, flat = self.parts(message)
        clean = [replace_surrogates(text) for text in texts if text]  # the package refuses lone surrogates
        return sum(self._count(clean, self.encoding)), OVERHEAD * units + flat


def counter_for(model: str | None) -> ExactTokenCounter | CharClassTokenCounter:
    """The best counter for a model that needs no network: exact where its vocabulary is known and the package is there,
    else by character class."""
    encoding = encoding_of(model)
    if encoding is not None:
        try:
            return ExactTokenCounter(encoding, model)
        except MissingExtraError:
            pass
    return CharClassTokenCounter(model)


def _counting() -> Any:
    try:
        import toktok
    except ImportError as error:
        raise MissingExtraError("tokens", "toktok-rs", "an exact token count") from error
    return toktok.batch_count


_RANK_FILES = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
}
"""Per vocabulary the name of its file, SHA-1 of its address as tiktoken caches it, and the SHA-256 of its content."""
_PIECE = 2_000
"""Characters of a run of text, or of white space, that are encoded at once: byte-pair merging is quadratic in it."""


@dataclass(frozen=True)
class TiktokenCounter(AdditiveCounter):
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
        texts, units, flat = counted_parts(message)
        encode = self._encoder.encode_ordinary
        count = sum(len(encode(piece)) for text in texts for piece in _pieces(replace_surrogates(text)))
        return count, OVERHEAD * units + flat


@cache
def _long_runs() -> re.Pattern[str]:
    # Looking back keeps a run that is too short from being tried again at each of its characters.
    return re.compile(rf"(?<!\S)\S{{{_PIECE},}}|(?<!\s)\s{{{_PIECE},}}")


def _pieces(text: str) -> Iterator[str]:
    start = 0
    for run in _long_runs().finditer(text):
        yield text[start : run.start()]
        for at in range(run.start(), run.end(), _PIECE):
            yield text[at : min(at + _PIECE, run.end())]
        start = run.end()
    yield text[start:]


def _load_encoder(encoding: str) -> Any:
    try:
        if not _has_ranks(encoding):
            return None
        import tiktoken

        return tiktoken.get_encoding(encoding)
    except Exception:  # the design document demands a silent fallback; `exact` tells of it
        return None


def _has_ranks(encoding: str) -> bool:
    # The package fetches a file that is missing, and throws away and fetches again one that is damaged.
    name, digest = _RANK_FILES[encoding]
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder is None:
        from tempfile import gettempdir  # costs a tenth of this package's import, and few ask

        folder = os.path.join(gettempdir(), "data-gym-cache")
    if not folder:  # the package takes this for "cache nothing"
        return False
    with open(os.path.join(folder, name), "rb") as file:
        return sha256(file.read()).hexdigest() == digest
