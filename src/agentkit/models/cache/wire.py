"""Request bodies as prompts of the cache. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Literal, TypeAlias

from .prompts import Block, Prompt

BodyWire: TypeAlias = Literal["anthropic", "openai_chat", "openai_responses", "gemini"]
TextCounter: TypeAlias = Callable[[str], int]
"""Tokens of a text."""
Memo: TypeAlias = MutableMapping[Any, tuple[Block, ...]]


def prompt_of(
    body: Mapping[str, Any],
    wire: BodyWire,
    *,
    counter: TextCounter | None = None,
    scope: str = "",
    token_counts: MutableMapping[str, int] | None = None,
    memo: Memo | None = None,
) -> Prompt:
    """The prompt that a request body is. `counter`: tokens of a text (by default a quarter of its characters);
    `token_counts`: tokens by block digest, read first and filled; `memo`: an empty dict that is handed in again with
    the next body of the same wire, so that messages which come again are not read anew."""
    raise NotImplementedError
