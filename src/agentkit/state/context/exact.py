"""`ExactTokenCounter`: a real tokenizer, offline. Touches only its arguments; the tokenizer's vocabularies are compiled
into the package that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agentkit.core.contracts.errors import MissingExtraError
from agentkit.core.contracts.messages import Message, derived
from agentkit.core.contracts.surrogates import replace_surrogates
from agentkit.core.contracts.tokens import OVERHEAD

from .model_facts import ImageRule, encoding_of, image_rule
from .tokens import CharClassTokenCounter, MediaRules

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
