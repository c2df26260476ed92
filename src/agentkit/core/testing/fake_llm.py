"""`FakeLLM`: a model that answers by rule, as a real stream. Touches only its arguments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from inspect import isawaitable
from typing import Any, TypeAlias

from agentkit.core.contracts.errors import PermanentError, TransientError
from agentkit.core.contracts.messages import Message, ToolCall
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult, assemble_deltas
from agentkit.core.contracts.usage import Usage

CHUNK = 8
"""Characters of a streamed piece."""

Answer: TypeAlias = str | LLMResult | Sequence[ToolCall] | BaseException
"""What a turn of a script is: a text, a whole result, calls of tools, or a failure."""
Rule: TypeAlias = str | LLMResult | Mapping[str, str] | Callable[[str, str, str | None], "Answer | Awaitable[Answer]"]


class FakeLLM:
    """A model whose answers are given beforehand.

    `responses`: the text of every answer; or a mapping of substrings to texts, of which the first that the last user
    message contains counts (LookupError when there is none); or a callable of (system text, last user text, model),
    sync or async. `script` takes turns instead. `usage` is reported with every answer that brings no own. The first
    `fail_times` calls raise `fail_exc` before anything is streamed. `delay`: seconds before the first piece, by the
    event loop's clock. `validate`: called with the messages; what it finds makes the call a PermanentError, as a
    provider would.
    """

    def __init__(
        self,
        responses: Rule = "",
        *,
        usage: Usage | None = None,
        fail_times: int = 0,
        fail_exc: BaseException | type[BaseException] = TransientError,
        delay: float = 0.0,
        validate: Callable[[Sequence[Message]], Iterable[Any]] | None = None,
    ) -> None:
        if not isinstance(responses, (str, LLMResult, Mapping)) and not callable(responses):
            raise TypeError(
                f"responses must be a text, a mapping or a callable, not {type(responses).__name__}; for one answer "
                "after the other: FakeLLM().script([...])"
            )
        self.requests: list[ChatRequest] = []
        """Every request that came, in order, those that failed included."""
        self._rule: Rule | None = responses
        self._turns: list[Answer] = []
        self._usage = Usage(10, 5, 0.0001) if usage is None else usage
        self._failures = fail_times
        self._fail_exc = fail_exc
        self._delay, self._validate = delay, validate

    @property
    def calls(self) -> int:
        """How many requests came."""
        return len(self.requests)

    def script(self, turns: Iterable[Answer]) -> FakeLLM:
        """Answer with these turns in order from now on, the last one again and again. Returns self."""
        self._turns = list(turns)
        if not self._turns:
            raise ValueError("a script needs at least one turn")
        self._rule = None
        return self

    def pricing(self, model: str | None, usage: Usage, /) -> float:
        """What a call costs: as much as it reports, so a limit in USD can be told of any model's name."""
        return usage.cost_usd

    async def stream(self, request: ChatRequest, /) -> AsyncGenerator[Delta, None]:
        """The pieces of the next answer; the last one has usage, finish reason and calls."""
        self.requests.append(request)
        await asyncio.sleep(self._delay)
        if self._failures > 0:
            self._failures -= 1
            raise self._fail_exc
        if self._validate is not None and (found := list(self._validate(request.messages))):
            raise PermanentError(f"invalid messages: {found}")
        result = self._result(await self._answer(request), request)
        for start in range(0, len(result.text), CHUNK):
            yield Delta(result.text[start : start + CHUNK])
            await asyncio.sleep(0)
        yield Delta(
            "",
            result.tool_calls,
            result.usage,
            result.finish_reason,
            result.parsed,
            blocks=result.blocks,
            model=result.model,
            meta=result.meta,
        )

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        """The whole next answer."""
        async with aclosing(self.stream(request)) as deltas:
            return assemble_deltas([delta async for delta in deltas])

    async def _answer(self, request: ChatRequest) -> Answer:
        rule = self._rule
        if rule is None:
            return self._turns.pop(0) if len(self._turns) > 1 else self._turns[0]
        if isinstance(rule, (str, LLMResult)):
            return rule
        user = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
        if isinstance(rule, Mapping):
            for part, text in rule.items():
                if part in user:
                    return text
            raise LookupError(f"no response is given for {user!r}; known are {sorted(rule)}")
        system = "\n".join(m.content for m in request.messages if m.role == "system")
        answer = rule(system, user, request.model)
        return await answer if isawaitable(answer) else answer

    def _result(self, answer: Answer, request: ChatRequest) -> LLMResult:
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, LLMResult):
            return answer
        if isinstance(answer, str):
            return LLMResult(answer, (), self._usage, "stop", request.model)
        return LLMResult("", tuple(answer), self._usage, "tool_calls", request.model)
