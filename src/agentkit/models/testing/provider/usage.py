"""What a fake provider counts: segments of a request, and what a prompt cache makes of it. Touches only its
arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agentkit.models.cache import Prompt, PromptCache, rules_for
from agentkit.models.cache.wire import prompt_of

from .anthropic_replies import arguments_text
from .shapes import dumped
from .values import Answer, Segment, Spent


def quarter(text: str) -> int:
    """A quarter of the characters, rounded up: the same for the same text, which is all that a cache needs."""
    return -(-len(text) // 4)


def segments_of(parts: Mapping[str, Any], prompt: Prompt) -> dict[str, Segment]:
    """The size of each part of a body; what is absent has none of it."""
    tokens = dict.fromkeys(parts, 0)
    for block in prompt.blocks:
        tokens[block.tier] += block.tokens
    return {
        name: Segment(len(dumped(value).encode("utf-8", "surrogatepass")) if value else 0, tokens[name])
        for name, value in parts.items()
    }


class Bills:
    """The prompt caches of the models that are asked, and what each request is charged for."""

    def __init__(self, counter: Callable[[str], int]) -> None:
        self._counter = counter
        self._caches: dict[str, PromptCache | None] = {}
        self._digests: dict[str, int] = {}
        self._memo: dict[Any, Any] = {}

    def prompt(self, body: Mapping[str, Any], wire: Any, scope: str) -> Prompt:
        """The request as blocks of the cache. Gemini's bodies do not name their model."""
        prompt = prompt_of(body, wire, counter=self._counter, scope=scope, token_counts=self._digests, memo=self._memo)
        return prompt if prompt.model else replace(prompt, model=body["model"])

    def bill(self, prompt: Prompt, at: float, first_byte: float | None) -> Any:
        """What the cache of the model makes of it; None for a model without cache rules. ValueError for a request that
        its provider would refuse."""
        if prompt.model not in self._caches:
            rules = rules_for(prompt.model)
            self._caches[prompt.model] = None if rules is None else PromptCache(rules)
        cache = self._caches[prompt.model]
        return None if cache is None else cache.send(prompt, at=at, first_byte=first_byte)

    def spent(self, prompt: Prompt, bill: Any, answer: Answer) -> Spent:
        """The usage to report: the bill's figures, and the size of the answer."""
        figures = {"fresh": prompt.tokens, "read": 0, "write_short": 0, "write_long": 0}
        if bill is not None:
            figures = {name: getattr(bill, name) for name in figures}
        thought = 0 if answer.thinking is None else self._counter(answer.thinking)
        said = self._counter(answer.text) + sum(
            self._counter(call.name + arguments_text(call)) for call in answer.calls
        )
        figures |= {"output": thought + said, "reasoning": thought}
        return Spent(**{**figures, **answer.usage})
