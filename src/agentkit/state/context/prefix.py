"""`PrefixContext`: the cache-stable head of what a model sees. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentkit.core.contracts.messages import Message, derived


@dataclass(frozen=True)
class PrefixContext:
    """System prompt, grounding and output schema, frozen: changing them means building another prefix, and paying for a
    cache write. Equal inputs are equal and hash equal."""

    system_prompt: str = ""
    grounding: tuple[Message, ...] = ()
    schema_block: str | None = None

    if TYPE_CHECKING:  # any iterable of messages is taken for the grounding

        def __init__(
            self, system_prompt: str = "", grounding: Iterable[Message] = (), schema_block: str | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.system_prompt, str):
            raise TypeError(f"PrefixContext.system_prompt must be a str, not {type(self.system_prompt).__name__}")
        if self.schema_block is not None and not isinstance(self.schema_block, str):
            raise TypeError(f"PrefixContext.schema_block must be a str or None, not {type(self.schema_block).__name__}")
        if isinstance(self.grounding, (str, Message)):
            raise TypeError(
                f"PrefixContext.grounding must be a sequence of Messages, not {type(self.grounding).__name__}"
            )
        grounding = tuple(self.grounding)
        for at, message in enumerate(grounding):
            if not isinstance(message, Message):
                raise TypeError(f"PrefixContext.grounding[{at}] must be a Message, not {type(message).__name__}")
        object.__setattr__(self, "grounding", grounding)

    def as_messages(self) -> list[Message]:
        """System prompt (left out when empty), grounding in order, schema block as a system message named `schema`
        (left out only when None). A fresh list each call."""
        return list(self.rendered)

    @property
    def rendered(self) -> tuple[Message, ...]:
        """The messages of `as_messages`, always the same objects."""
        return derived(self, "_rendered", _render)

    def __bool__(self) -> bool:
        return bool(self.rendered)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}


def _render(prefix: PrefixContext) -> tuple[Message, ...]:
    head = (Message("system", prefix.system_prompt),) if prefix.system_prompt else ()
    schema = (Message("system", prefix.schema_block, name="schema"),) if prefix.schema_block is not None else ()
    return (*head, *prefix.grounding, *schema)
