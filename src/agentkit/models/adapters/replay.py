"""`ReplayLLM`: a model that answers as it did in a recorded conversation; `RecordedTools`: the results that its tools
had. Touches only its arguments.

The answer is found by what the request asks last, so nothing has to be kept between two requests: a caller may be
killed, start again, fold or mask what is older, and is answered as the recording goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias

from agentkit.core.contracts.errors import PermanentError
from agentkit.core.contracts.jsontext import canonical_json
from agentkit.core.contracts.messages import Message, ToolCall
from agentkit.core.contracts.offers import ToolSchema
from agentkit.core.contracts.requests import ChatRequest, Delta, LLMResult
from agentkit.core.contracts.usage import Usage
from agentkit.core.contracts.validity import FIRST, STRICT, Rules
from agentkit.models.usage import read_usage

from .in_process import backwards, measured_usage, pieces, refuse_invalid
from .recording import Question, Recording

INTERRUPTED = "[The recorded model was interrupted here.]"
"""The answer to results behind which the recording has the user's next words in place of an answer, or nothing more:
it ends the turn, and what the user said next is the next turn's."""

Structured: TypeAlias = "str | Callable[[ChatRequest], str | LLMResult]"


class ReplayLLM:
    """Answers from recorded conversations, each a sequence of Messages as the importers make them.

    `loose`: a question that was never asked gets the next answer that was not given yet, in place of PermanentError.
    `structured`: the answer to requests with a response format (summaries, verdicts), which are in no recording: a text
    or a function of the request; None refuses them. `usage`: of each answer, as `measured` from the request that is
    answered, or as `recorded` where it was, whatever the request has become since. `interrupted`: see INTERRUPTED.
    """

    def __init__(
        self,
        *conversations: Sequence[Message],
        loose: bool = False,
        structured: Structured | None = None,
        usage: Literal["measured", "recorded"] = "measured",
        interrupted: str = INTERRUPTED,
        rules: Rules = STRICT,
    ) -> None:
        if usage not in ("measured", "recorded"):
            raise ValueError(f"usage must be measured or recorded, not {usage!r}")
        self._recording = Recording.of(conversations)
        self._loose, self._structured, self._usage = loose, structured, usage
        self._interrupted, self._rules = interrupted, rules
        self._given: set[int] = set()
        self._last = -1
        self._last_request = b""

    @cached_property
    def tools(self) -> RecordedTools:
        """The tools of these conversations."""
        return RecordedTools.of(self._recording)

    @property
    def answers(self) -> int:
        """How many answers were recorded."""
        return sum(question.answer is not None for question in self._recording.questions)

    async def chat(self, request: ChatRequest, /) -> LLMResult:
        """The recorded answer. PermanentError for an invalid request and for a question that was never asked."""
        return self.answer(request)

    async def stream(self, request: ChatRequest, /) -> AsyncGenerator[Delta, None]:
        """The recorded answer in pieces."""
        for delta in pieces(self.answer(request)):
            yield delta

    def answer(self, request: ChatRequest) -> LLMResult:
        """`chat`, without awaiting anything."""
        refuse_invalid(request, self._rules)
        if request.response_format is not None:
            return self._structured_answer(request)
        stamp = _stamp(request)
        # A request that is sent again, after a fault on the way say, is no new one.
        after = self._last - 1 if stamp == self._last_request else self._last
        place = self._recording.find(request, after=after)
        if place is None and self._loose:
            place = self._next(request)
        if place is None:
            raise PermanentError(f"400: the recording has no answer to {_asked(request)}; {self._size()}")
        self._last, self._last_request = place, stamp
        self._given.add(place)
        return self._result(self._recording.questions[place], request)

    def _next(self, request: ChatRequest) -> int | None:
        """The next answer that was not given yet, behind the one that the request shows last, if it is known."""
        behind = self._recording.behind(request)
        start = next((place for place in behind if place > self._last), behind[0] if behind else self._last + 1)
        left = range(start, len(self._recording.questions))
        questions = self._recording.questions
        return next((n for n in left if n not in self._given and questions[n].answer is not None), None)

    def _result(self, question: Question, request: ChatRequest) -> LLMResult:
        asked, _ = next(backwards(request.messages, request.prefix_length))
        goes_on = question.answer is not None and (asked.texts or not question.said or self._loose)
        if not goes_on and asked.texts:
            raise PermanentError(f"400: the recording ends with {_asked(request)}; {self._size()}")
        answer = question.answer if goes_on else None
        message = Message("assistant", self._interrupted) if answer is None else answer
        usage = measured_usage(request, message)
        if self._usage == "recorded":
            usage = recorded_usage(message) or usage
        reason = "tool_calls" if message.tool_calls else "stop"
        return LLMResult(
            message.content, message.tool_calls, usage, reason, request.model, blocks=message.blocks, meta=message.meta
        )

    def _structured_answer(self, request: ChatRequest) -> LLMResult:
        if self._structured is None:
            raise PermanentError("400: the recording has no answer to a request with a response format")
        found = self._structured if isinstance(self._structured, str) else self._structured(request)
        if isinstance(found, LLMResult):
            return found
        usage = measured_usage(request, Message("assistant", found))
        return LLMResult(found, (), usage, "stop", request.model)

    def _size(self) -> str:
        return f"it has {self.answers} answers, {len(self._given)} of them given so far"


class RecordedTools:
    """The tools of recorded conversations: their names, and the result that each call had."""

    def __init__(self, *conversations: Sequence[Message]) -> None:
        self._read(Recording.of(conversations))

    @classmethod
    def of(cls, recording: Recording) -> Self:
        """The tools of a recording that was read already."""
        made = cls()
        made._read(recording)
        return made

    def _read(self, recording: Recording) -> None:
        self._by_id: dict[tuple[str, str], list[tuple[ToolCall, Message | None]]] = {}
        self._by_call: dict[str, list[Message]] = {}
        self._dealt: dict[str, dict[str, int]] = {}
        names: set[str] = set()
        for question in recording.questions:
            for call, result in question.calls:
                names.add(call.name)
                self._by_id.setdefault((call.id, call.name), []).append((call, result))
                if result is not None:
                    self._by_call.setdefault(_call_key(call), []).append(result)
        self.names: tuple[str, ...] = tuple(sorted(names))
        """Every tool that was called, sorted."""

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """A schema for each tool. It takes any arguments: what the tool asked for was not recorded with the calls."""
        return tuple(
            ToolSchema(name, f"Gives the recorded results of {name}.", {"type": "object"}) for name in self.names
        )

    def result(self, call: ToolCall) -> Message:
        """The recorded result, under this call's id: by id and arguments, else by name and arguments, where the same
        call had several results in the order of their recording. LookupError when there is none."""
        key = _call_key(call)
        for known, result in self._by_id.get((call.id, call.name), ()):
            if result is not None and _call_key(known) == key:
                return _renamed(result, call.id)
        found = self._by_call.get(key)
        if not found:
            raise LookupError(f"no result of {call.name} with these arguments was recorded")
        # A call that is run again, after a restart say, is the same call.
        dealt = self._dealt.setdefault(key, {})
        at = dealt.setdefault(call.id, len(dealt))
        return _renamed(found[min(at, len(found) - 1)], call.id)


def user_turns(messages: Sequence[Message]) -> Iterator[Message]:
    """What users sent that the model answered, in order: sent one after the other, each once the answer to the one
    before has ended, they bring back the recorded conversation.

    A recording that begins with the model's answer begins with the text that stands in there for every provider.
    """
    for question in Recording.of([messages]).questions:
        if question.answer is None:
            continue
        if len(question.said) == 1:
            yield question.said[0]
        elif question.said:
            yield Message("user", None, blocks=[item for message in question.said for item in message.ordered])
        elif question.is_silent and question.before is None:
            yield Message("user", FIRST)


def recorded_usage(message: Message) -> Usage | None:
    """What the provider reported for an answer, as the importers keep it in `meta`; None where it says nothing."""
    found: Any = message.meta.get("usage")
    if isinstance(found, Usage):
        return found
    if not isinstance(found, Mapping):
        return None
    wire = "openai_chat" if "prompt_tokens" in found else "anthropic"
    if "input_tokens_details" in found:
        wire = "openai_responses"
    reading = read_usage(found, wire)
    return None if reading.is_doubtful else reading.usage


def _asked(request: ChatRequest) -> str:
    """What a request asks last, in words."""
    asked, _ = next(backwards(request.messages, request.prefix_length))
    if asked.texts:
        text = asked.texts[-1]
        return f"the message {text if len(text) <= 80 else text[:77] + '...'!r}"
    if asked.results:
        return "the results of " + ", ".join(f"{r.name or 'a tool'} ({r.tool_call_id})" for r in asked.results)
    return "a request in which nobody said anything"


def _call_key(call: ToolCall) -> str:
    return canonical_json([call.name, canonical_json(call.arguments)])


def _renamed(result: Message, call_id: str) -> Message:
    if result.tool_call_id == call_id:
        return result
    return replace(result, tool_call_id=call_id)


def _stamp(request: ChatRequest) -> bytes:
    whole = hashlib.sha256()
    for message in request.messages:
        whole.update(message.digest)
    return whole.digest()
