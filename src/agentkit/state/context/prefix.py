"""`PrefixContext`: the cache-stable head of what a model sees. Touches only its arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentkit.core.contracts.checks import settle_text
from agentkit.core.contracts.messages import FieldsOnly, Message, derived, require_messages


@dataclass(frozen=True)
class PrefixContext(FieldsOnly):
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
        settle_text(self, "system_prompt")
        settle_text(self, "schema_block", optional=True)
        if isinstance(self.grounding, (str, Message)):
            raise TypeError(
                f"PrefixContext.grounding must be a sequence of Messages, not {type(self.grounding).__name__}"
            )
        object.__setattr__(self, "grounding", tuple(require_messages(self.grounding, "PrefixContext.grounding")))

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


def _render(prefix: PrefixContext) -> tuple[Message, ...]:
    head = (Message("system", prefix.system_prompt),) if prefix.system_prompt else ()
    schema = (Message("system", prefix.schema_block, name="schema"),) if prefix.schema_block is not None else ()
    return (*head, *prefix.grounding, *schema)
