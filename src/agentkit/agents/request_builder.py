"""`RequestBuilder`: puts a task into a context and lays out what the model is sent. Touches the memory and the
compactor it is given.

An empty prefix, not an empty transcript, means that prompt, grounding and schema are still to be set. From then on a
turn appends its task and leaves the prefix, and with it the provider's prompt cache, as it is.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any, Protocol, TypeAlias

from agentkit.core.contracts.hashing import stable_hash
from agentkit.core.contracts.messages import Message
from agentkit.core.contracts.ports import Compactor, Ctx, MemorySource
from agentkit.state.context import Layout, PrefixContext, WorkingContext

from .output import OutputAdapter
from .shortening import shorten

BudgetCheck: TypeAlias = "Callable[[BuiltRequest, Ctx], Awaitable[None] | None]"
"""Is shown each request before it is sent; refuses it by raising."""


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


class Builder(Protocol):
    """What an agent asks for its requests. A RequestBuilder is one; another may lay out as it likes."""

    async def build(
        self, task: str, wc: WorkingContext, ctx: Ctx, output_adapter: OutputAdapter | None = None
    ) -> BuiltRequest: ...


class RequestBuilder:
    """`prompt` is the system prompt; `grounder` is asked for what is relevant to the task: on the first turn, or with
    `reground_every_turn` on each, which replaces the grounding and costs a cache write whenever it changes.

    `compactor` is asked before each request whether to shorten the transcript, and again when one does not fit the
    model's window. `budget_check` is shown each request and refuses it by raising.
    """

    def __init__(
        self,
        prompt: str = "",
        grounder: MemorySource | None = None,
        compactor: Compactor | None = None,
        reground_every_turn: bool = False,
        budget_check: BudgetCheck | None = None,
    ) -> None:
        if not isinstance(prompt, str):
            raise TypeError(f"prompt must be a str, not {type(prompt).__name__}")
        if compactor is not None and not isinstance(compactor, Compactor):
            raise TypeError(f"compactor must be a Compactor, not {type(compactor).__name__}")
        if budget_check is not None and not callable(budget_check):
            raise TypeError(f"budget_check must be callable, not {type(budget_check).__name__}")
        self.prompt, self.grounder, self.reground_every_turn = prompt, grounder, reground_every_turn
        self.compactor, self.budget_check = compactor, budget_check
        self.prompt_version = stable_hash(prompt)[:12] if prompt else None

    async def build(
        self, task: str, wc: WorkingContext, ctx: Ctx, output_adapter: OutputAdapter | None = None
    ) -> BuiltRequest:
        """Append `task` to `wc` (an empty one adds nothing), set the prefix where it is due, shorten the transcript
        where the compactor says so, and lay out the whole."""
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
        if self.compactor is not None:
            await shorten(wc, self.compactor, ctx)
        layout = wc.segments()
        built = BuiltRequest(tuple(layout.messages()), self.prompt_version, wc.count().tokens, layout=layout)
        if self.budget_check is not None:
            checked = self.budget_check(built, ctx)
            if isawaitable(checked):
                await checked
        return built

    async def _grounding(self, task: str, ctx: Ctx) -> tuple[Message, ...]:
        if self.grounder is None or not task:
            return ()
        lines = [_line(item) for item in await self.grounder.query(task, ctx)]
        return (Message("system", "\n".join(["Relevant context:", *lines]), name="grounding"),) if lines else ()


def _line(item: Any) -> str:
    """`[source] content` of a MemoryItem, a Chunk or a plain text. Further lines of it are set in, so that no recalled
    text can begin a line of its own and pass for another item, or for what stands around them."""
    source = "" if isinstance(item, str) else getattr(item, "source", "")
    text = item if isinstance(item, str) else str(item.text)
    return _BREAKS.sub("\n  ", f"[{source}] {text}" if source else text)


_BREAKS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
"""What ends a line, for any reader."""


def has_request(messages: Sequence[Message]) -> bool:
    """Whether anything but standing text is there to be answered."""
    return any(message.role not in ("system", "developer") for message in messages)
