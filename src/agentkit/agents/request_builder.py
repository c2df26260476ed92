"""`RequestBuilder`: puts a task into a context and lays out what the model is sent. Touches the memory it is given.

An empty prefix, not an empty transcript, means that prompt, grounding and schema are still to be set. From then on a
turn appends its task and leaves the prefix, and with it the provider's prompt cache, as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentkit.core.contracts.hashing import stable_hash
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.ports import Ctx, MemorySource
from agentkit.state.context import Layout, PrefixContext, WorkingContext


class OutputAdapter(Protocol):
    """Tells a model which form its answer must have, and reads it. `parse` raises ValueError, TypeError or LookupError
    with a text that the model is shown."""

    @property
    def schema_block(self) -> str: ...

    def parse(self, text: str, /) -> Any: ...


@dataclass(frozen=True)
class BuiltRequest:
    """What to send: the messages, the version of the prompt in them, and how many tokens they are about.

    `layout` is what they came from, for cache marks and for `record_usage`; None when a builder made them otherwise.
    """

    messages: tuple[Message, ...]
    prompt_version: str | None = None
    approx_tokens: int = 0
    layout: Layout | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", tuple(self.messages))


class RequestBuilder:
    """`prompt` is the system prompt; `grounder` is asked for what is relevant to the task: on the first turn, or with
    `reground_every_turn` on each, which replaces the grounding and costs a cache write whenever it changes."""

    def __init__(
        self, prompt: str = "", grounder: MemorySource | None = None, reground_every_turn: bool = False
    ) -> None:
        if not isinstance(prompt, str):
            raise TypeError(f"prompt must be a str, not {type(prompt).__name__}")
        self.prompt, self.grounder, self.reground_every_turn = prompt, grounder, reground_every_turn
        self.prompt_version = stable_hash(prompt)[:12] if prompt else None

    async def build(
        self, task: str, wc: WorkingContext, ctx: Ctx, output_adapter: OutputAdapter | None = None
    ) -> BuiltRequest:
        """Append `task` to `wc` (an empty one adds nothing), set the prefix where it is due, and lay out the whole."""
        before = wc.prefix
        if not before or (self.reground_every_turn and task):
            grounding = await self._grounding(task, ctx)
            if before:
                prefix = PrefixContext(before.system_prompt, grounding, before.schema_block)
            else:
                schema = None if output_adapter is None else output_adapter.schema_block
                prefix = PrefixContext(self.prompt, grounding, schema)
            # Another agent on the same context may have set it while the memory was asked; equal ones keep the object.
            if wc.prefix is before and prefix != before:
                wc.prefix = prefix
        if task:
            wc.append(Message("user", task))
        layout = wc.segments()
        return BuiltRequest(tuple(layout.messages()), self.prompt_version, wc.count().tokens, layout=layout)

    async def _grounding(self, task: str, ctx: Ctx) -> tuple[Message, ...]:
        if self.grounder is None or not task:
            return ()
        lines = [_line(item) for item in await self.grounder.query(task, ctx)]
        return (Message("system", "\n".join(["Relevant context:", *lines]), name="grounding"),) if lines else ()


def _line(item: Any) -> str:
    """`[source] content` of a MemoryItem, a Chunk or a plain text."""
    if isinstance(item, str):
        return item
    source = getattr(item, "source", "")
    return f"[{source}] {item.text}" if source else str(item.text)


def has_request(messages: Sequence[Message]) -> bool:
    """Whether anything but standing text is there to be answered."""
    return any(message.role not in ("system", "developer") for message in messages)
