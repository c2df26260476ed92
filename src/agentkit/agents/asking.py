"""One call of the model after another, for one run: what is sent, what it may cost, what comes back. Calls the run's
invoker and writes the working context."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from math import ceil
from typing import Any

from agentkit.core.contracts.errors import ContextOverflowError, EmptyRequestError
from agentkit.core.contracts.messages import Message, ToolCall
from agentkit.core.contracts.offers import ToolSchema
from agentkit.core.contracts.ports import Ctx
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult, StreamEvent, assemble_deltas
from agentkit.core.contracts.tokens import measure
from agentkit.core.contracts.usage import Usage
from agentkit.models.catalog import rates, resolve_window
from agentkit.state.context import Layout, WorkingContext

from .hooks import CompactionWatch, watching
from .marks import hint_of
from .plan import Plan
from .request_builder import BuiltRequest, has_request
from .shortening import shorten_to_fit


class Asking:
    """The model calls of one run. `usage` and `calls` are those made so far, `result` the latest answer, `text` the
    latest that had any."""

    def __init__(self, plan: Plan, ctx: Ctx, wc: WorkingContext, tools: tuple[ToolSchema, ...] = ()) -> None:
        self.plan, self.ctx, self.wc, self.tools = plan, ctx, wc, tools
        self.usage, self.calls = Usage(), 0
        self.result = LLMResult()
        self.message = Message("assistant")
        self.text = ""
        self.prompt_version: str | None = None
        self._layout: Layout | None = None

    async def ask(self, task: str, *, last: bool) -> AsyncGenerator[StreamEvent, None]:
        """Ask the model, `task` appended first where there is one, and append its answer; yields its text as it comes.

        `last`: no further call of this run is expected. A request above the window is shortened once, where there is a
        compactor, and otherwise ends in ContextOverflowError with the sizes by segment; nothing was sent then.
        """
        require_price(self.plan.model, self.ctx)
        built = await self._build(task)
        self.prompt_version = built.prompt_version
        if not has_request(built.messages):
            raise EmptyRequestError
        retried = False
        while True:
            deltas: list[Delta] = []
            request, meta = await self._request(built, goes_on=self.plan.kept or not last)
            await self.plan.hooks.call("before_model", self.ctx, request)
            try:
                async with aclosing(self.ctx.invoker.stream(request, self.ctx, meta=meta)) as pieces:
                    async for delta in pieces:
                        deltas.append(delta)
                        if delta.text:
                            yield StreamEvent("message_delta", delta.text)
                break
            except ContextOverflowError as error:
                if retried or deltas or not await self._fitted(request, error):
                    raise
                retried = True
                built = await self._build("")
        await self._take(request, meta, assemble_deltas(deltas))

    async def _build(self, task: str) -> BuiltRequest:
        with self._watched():
            return await self.plan.builder.build(task, self.wc, self.ctx, self.plan.output)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """A compaction in here is told to the agent's hooks."""
        before = watching.set(self.plan.hooks)
        try:
            yield
        finally:
            watching.reset(before)

    async def _request(self, built: BuiltRequest, *, goes_on: bool) -> tuple[ChatRequest, dict[str, Any]]:
        plan, wc = self.plan, self.wc
        closing = await plan.closing_block(wc, self.ctx)
        self._layout = built.layout
        if built.layout is not None and (self.tools or closing):
            self._layout = wc.segments(tools=self.tools, volatile=closing)
        messages = (*built.messages, *closing) if self._layout is None else tuple(self._layout.messages())

        def marks(layout: Layout | None) -> Any:
            return hint_of(layout, bool(wc.prefix), plan.model, wc.sent, goes_on)

        request = ChatRequest(
            messages,
            plan.model,
            self.tools or None,
            plan.response_format,
            plan.temperature,
            plan.max_tokens,
            marks(self._layout),
            prefix=len(wc.prefix.rendered),
            options={"cache_key": cache_key(self.ctx), **plan.options},
        )
        meta: dict[str, Any] = {
            "context": wc,
            "calibration": plan.known.calibration(plan.model, wc),
            "hooks": CompactionWatch(plan.hooks),
            "marks": marks,
        }
        meta["check"] = lambda sent: self._require_fit(sent, meta.get("layout") or self._layout)
        return request, meta

    async def _take(self, request: ChatRequest, meta: dict[str, Any], result: LLMResult) -> None:
        """Take down an answer; from the append on nothing is awaited, so that whoever follows owns its calls."""
        self.calls += 1
        self.usage += result.usage
        await self.plan.hooks.call("after_model", self.ctx, request, result)
        layout: Layout | None = meta.get("layout") or self._layout
        model = meta.get("model") or self.plan.model
        if layout is not None:
            seen = self.wc.record_usage(result.usage, layout=layout, model=model)
            self.plan.known.learn(model, self.wc, seen)
        self.result, self.message = result, with_call_ids(result.message, self.calls)
        self.text = result.text or self.text
        self.wc.append(self.message)

    def _require_fit(self, request: ChatRequest, layout: Layout | None) -> None:
        """ContextOverflowError for a request above the window of its model, where one is known."""
        error = None if layout is None else self._overflow(request, layout)
        if error is not None:
            raise error

    def _overflow(self, request: ChatRequest, layout: Layout) -> ContextOverflowError | None:
        """What is wrong with the size of the next request. Decided on the upper bound of the count; of a model that no
        window is known of, the provider alone can tell."""
        plan, wc = self.plan, self.wc
        window = resolve_window(request.model, declared=plan.window, learned=plan.known.windows.get(request.model))
        if window.source == "default":
            return None
        calibration = plan.known.calibration(request.model, wc)
        count = wc.count(calibration, tools=request.tools or ())
        closing = layout.segment("volatile").messages
        size = count.upper + ceil(calibration.factor * measure(closing, wc.token_counter))
        # The table's windows are those of prompts; a declared or learnt one has to hold the answer as well.
        output = 0 if window.source == "catalogue" else plan.max_tokens or 0
        if size + output <= window.tokens:
            return None
        sizes = {segment.kind: segment.tokens for segment in layout.segments if segment.tokens}
        told = ", ".join(f"{name} {tokens:,}" for name, tokens in sizes.items())
        return ContextOverflowError(
            f"the request may have up to {size:,} tokens ({told}) and the answer {output:,}, while the window of "
            f"{request.model!r} has {window.tokens:,} ({window.source}); shorten the context, or give the agent a "
            "RequestBuilder with a compactor",
            window=window.tokens,
            sizes={**sizes, **({"output": output} if output else {})},
        )

    async def _fitted(self, request: ChatRequest, error: ContextOverflowError) -> bool:
        """Whether the context was shortened after a refusal; the window that a provider named is kept in mind."""
        request = replace(request, model=error.model or request.model)
        if error.window and not error.sizes:
            self.plan.known.windows[request.model] = error.window
        compactor = getattr(self.plan.builder, "compactor", None)
        if compactor is None:
            return False
        calibration = self.plan.known.calibration(request.model, self.wc)
        counted = max(self.wc.count(calibration, tools=self.tools).tokens, 1)
        factor = calibration.factor * max((error.window or 0) / counted, 1.0)
        closing = () if self._layout is None else self._layout.segment("volatile").messages

        def fits() -> bool:
            return self._overflow(request, self.wc.segments(tools=self.tools, volatile=closing)) is None

        with self._watched():
            return await shorten_to_fit(self.wc, compactor, self.ctx, factor, fits)


def require_price(model: str | None, ctx: Ctx) -> None:
    """ValueError where the run has a limit in USD and nobody knows what the model costs."""
    limit = getattr(getattr(ctx, "budget", None), "max_cost_usd", None)
    if limit is None:
        return
    client = getattr(ctx.invoker, "llm", None)
    if getattr(client, "pricing", None) is not None:
        return
    named = model or getattr(client, "model", None)
    if rates(named) is None:
        raise ValueError(
            f"the run may cost {limit} USD, but no price is known for the model {named!r}: limit max_calls instead, or "
            "use a client that has `pricing(model, usage)`"
        )


def cache_key(ctx: Ctx) -> str:
    """What providers route a tenant's requests by, so that they reach the same cache."""
    return hashlib.sha256(ctx.scope.key().encode("ascii")).hexdigest()[:32]


def with_call_ids(message: Message, number: int) -> Message:
    """The message with an id for each of its calls, no two the same: a result has to name the call that it answers."""
    calls: Sequence[ToolCall] = message.tool_calls
    ids = [call.id for call in calls]
    if all(ids) and len(set(ids)) == len(ids):
        return message
    taken: set[str] = set()
    settled = []
    for at, call in enumerate(calls):
        found = call.id if call.id and call.id not in taken else f"call-{number}-{at}"
        taken.add(found)
        settled.append(call if found == call.id else replace(call, id=found))
    return replace(message, tool_calls=tuple(settled))
