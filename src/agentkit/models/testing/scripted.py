"""`ScriptedLLM`: a model that follows a script, for tests of whoever calls models. Touches only its arguments and the
sleep it is given.

A script is a mapping, as a YAML or JSON file would hold it:

    window: 8000              # tokens; a larger request is refused, naming this window
    strict: true              # refuse what a provider would refuse (default)
    delay: 0.1                # seconds before each answer
    usage: {input: 90, output: 5}   # of every answer; default measured
    rules:                    # the first that fits counts
      - when: weather         # occurs in what the person said last
        turns:                # one after the other while that is the last thing said
          - calls: [{name: look, arguments: {city: Rome}}]
          - It is sunny.
      - result: "error 42"    # occurs in the results that came last
        text: That went wrong.
    turns: [Hello., Goodbye.] # where no rule fits: the nth such request gets the nth turn
    structured: ['{"facts": []}']   # for requests with a response format; rules and turns of their own
    repeat: false             # whether the last turn of a list is given again and again; else its end is an error
    log: requests.jsonl       # agentd writes a line for each request: outcome and digests by segment

A turn is a text or a mapping: `text`, `calls` (name, arguments as a mapping or as text that may be malformed, id),
`usage` (input, output, cache_read, cache_write), `delay`, `finish_reason`, `cut` (characters after which the stream
ends without a finish reason), `error` (a kind or {kind, message, window}; kinds: transient, permanent, auth, overflow;
together with `cut` it is raised there), `times` (the error is raised this often, then the turn is given whole; without
it, always: in `turns` the next request gets the next turn).
A rule may hold the fields of its only turn itself; a list of turns may be its only turn, and a script or a section its
list of turns.

Which turn of a rule is due is read off the request, so a caller that was killed and starts again is answered as if
nothing had happened. Only `turns` without a rule are counted in the process.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from agentkit.core.contracts.errors import (
    AuthError,
    ContextOverflowError,
    PermanentError,
    ProviderError,
    TransientError,
)
from agentkit.core.contracts.messages import Message, marked
from agentkit.core.contracts.offers import Breakpoint, canonical_tools
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult, assemble_deltas
from agentkit.core.contracts.usage import Usage
from agentkit.core.contracts.validity import STRICT, Rules
from agentkit.models.adapters.in_process import Asked, backwards, measured_usage, pieces, refuse_invalid, request_tokens

from .script import Fault, Rule, Script, Section, Turn

__all__ = ["Fault", "Received", "Rule", "Script", "ScriptedLLM", "Turn"]

KEPT = 1_000
"""Requests that are remembered: enough for any test, and no leak in a process that runs for days."""


@dataclass(frozen=True)
class Received:
    """A request that came, and what became of it. `digests`: SHA-256 of its segments by name, as far as the request
    tells them apart: prefix (tools included), summary, tail, and volatile where it has cache breakpoints."""

    request: ChatRequest
    digests: Mapping[str, str] = field(hash=False)
    outcome: str = ""


class ScriptedLLM:
    """A model that answers by `script`, a mapping of the form above.

    `strict` and `window` in place of the script's. `received` keeps the latest requests, failed ones included;
    `on_request` is told each. FormatError at once for a script that cannot be read.
    """

    def __init__(
        self,
        script: Script | Mapping[str, Any] | Sequence[Any] | str,
        *,
        strict: bool | None = None,
        window: int | None = None,
        rules: Rules = STRICT,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        on_request: Callable[[Received], None] | None = None,
    ) -> None:
        self.script = script if isinstance(script, Script) else Script.read(script)
        self.received: deque[Received] = deque(maxlen=KEPT)
        self._strict = self.script.strict if strict is None else strict
        self._window = self.script.window if window is None else window
        self._rules, self._sleep, self._on_request = rules, sleep, on_request
        self._asked: dict[str, int] = {}
        self._failed: dict[int, int] = {}

    @property
    def requests(self) -> list[ChatRequest]:
        """The latest requests, oldest first."""
        return [one.request for one in self.received]

    async def stream(self, request: ChatRequest, /) -> AsyncGenerator[Delta, None]:
        """The pieces of the answer; the last one has usage, finish reason and calls."""
        try:
            turn = self._turn(request)
        except ProviderError as error:
            self._note(request, f"{type(error).__name__}: {error}")
            raise
        fault = self._fault_of(turn)
        delay = self.script.delay if turn.delay is None else turn.delay
        self._note(request, "answered" if fault is None else f"{fault.kind}: {fault.message}")
        if delay:
            await self._sleep(delay)
        if fault is not None and turn.cut is None:
            raise _error(fault, self._window)
        async with aclosing(self._streamed(turn, request, fault)) as deltas:
            async for delta in deltas:
                yield delta

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        """The whole answer. One whose stream is cut off has no finish reason and is marked as partial."""
        async with aclosing(self.stream(request)) as deltas:
            result = assemble_deltas([delta async for delta in deltas])
        return result if result.finish_reason is not None else replace(result, partial=True)

    async def _streamed(self, turn: Turn, request: ChatRequest, fault: Fault | None) -> AsyncGenerator[Delta, None]:
        result = self._result(turn, request)
        if turn.cut is not None and (fault is not None or turn.error is None):
            for at in range(0, min(turn.cut, len(result.text)), 8):
                yield Delta(result.text[at : min(at + 8, turn.cut)])
            if fault is not None:
                raise _error(fault, self._window)
            return
        for delta in pieces(result):
            yield delta

    # What is due

    def _turn(self, request: ChatRequest) -> Turn:
        if self._strict:
            refuse_invalid(request, self._rules)
        if self._window is not None and (tokens := request_tokens(request)) > self._window:
            text = f"400: the request has {tokens} tokens, the window of this model has {self._window}"
            raise ContextOverflowError(text, window=self._window, sizes={"request": tokens})
        if request.response_format is not None:
            if self.script.structured is None:
                raise PermanentError("400: the script has no `structured` answer for a request with a response format")
            return self._of_section("structured", self.script.structured, request)
        return self._of_section("turns", self.script.plain, request)

    def _of_section(self, name: str, section: Section, request: ChatRequest) -> Turn:
        asked, said, done = _newest(request)
        for rule in section.rules:
            if rule.fits(said, asked):
                at = 0 if rule.result is not None else done
                return self._nth(rule.turns, at, f"the rule for {rule.name!r}")
        at = self._asked.get(name, 0)
        turn = self._nth(section.turns, at, f"`{name}`, where no rule fits {_short(said)},")
        if turn.times is None or self._failed.get(id(turn), 0) >= turn.times:
            self._asked[name] = at + 1
        return turn

    def _nth(self, turns: Sequence[Turn], at: int, what: str) -> Turn:
        if at < len(turns):
            return turns[at]
        if self.script.repeat and turns:
            return turns[-1]
        raise PermanentError(f"the script is at its end: {what} has {len(turns)} turns, and this asks for the next")

    def _fault_of(self, turn: Turn) -> Fault | None:
        """The error to raise now. Counted, since `times` says how often."""
        if turn.error is None or turn.times is None:
            return turn.error
        failed = self._failed.get(id(turn), 0)
        self._failed[id(turn)] = failed + 1
        return turn.error if failed < turn.times else None

    def _result(self, turn: Turn, request: ChatRequest) -> LLMResult:
        calls = turn.made(_stamp(request)) if turn.calls else ()
        reason = turn.finish_reason or ("tool_calls" if calls else "stop")
        result = LLMResult(turn.text, calls, Usage(), reason, request.model)
        usage = turn.usage or self.script.usage or measured_usage(request, result.message)
        return replace(result, usage=usage)

    def _note(self, request: ChatRequest, outcome: str) -> None:
        received = Received(request, segment_digests(request), outcome)
        self.received.append(received)
        if self._on_request is not None:
            self._on_request(received)


def segment_digests(request: ChatRequest) -> dict[str, str]:
    """SHA-256 of each segment that a request tells apart, as hexadecimal digits."""
    length = request.prefix_length
    messages = request.messages
    end = len(messages)
    hint = request.cache_hint
    found: dict[str, str] = {}
    if isinstance(hint, tuple) and hint and all(isinstance(mark, Breakpoint) for mark in hint):
        end = min(max(max(mark.position for mark in hint), length), end)
        found["volatile"] = _digest(messages[end:])
    at = length + 1 if length < end and marked(messages[length], "summary") is not None else length
    found["prefix"] = _digest(messages[:length], *canonical_tools(request.tools or ()))
    found["summary"], found["tail"] = _digest(messages[length:at]), _digest(messages[at:end])
    return found


def _digest(messages: Sequence[Message], *texts: str) -> str:
    whole = hashlib.sha256()
    for text in texts:
        whole.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    for message in messages:
        whole.update(message.digest)
    return whole.hexdigest()


def _newest(request: ChatRequest) -> tuple[Asked, str, int]:
    """What was asked last, what a person said last, and how many answers came since."""
    asked: Asked | None = None
    for done, (found, _) in enumerate(backwards(request.messages, request.prefix_length)):
        asked = found if asked is None else asked
        if found.texts:
            return asked, "\n".join(found.texts), done
    return asked or Asked(), "", 0


def _stamp(request: ChatRequest) -> str:
    """What makes the call ids of this answer differ from those of other requests, and is the same when it is asked
    again."""
    whole = hashlib.sha256()
    for message in request.messages:
        whole.update(message.digest)
    return whole.hexdigest()[:16]


def _error(fault: Fault, window: int | None) -> ProviderError:
    if fault.kind == "overflow":
        return ContextOverflowError(fault.message, window=fault.window or window)
    kinds: dict[str, type[ProviderError]] = {
        "transient": TransientError,
        "permanent": PermanentError,
        "auth": AuthError,
    }
    return kinds[fault.kind](fault.message)


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
