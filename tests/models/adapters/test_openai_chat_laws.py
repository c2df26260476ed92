"""Laws of the three adapters beside Anthropic's: whatever a transcript holds, the provider takes its body; what grows
keeps its beginning; what is known is not rendered again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import EmptyRequestError
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.types import Message, NativeBlock, ToolCall
from agentkit.core.contracts.validity import check
from agentkit.models.adapters.gemini import GeminiLLM
from agentkit.models.adapters.openai_chat import OpenAIChatLLM
from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM
from agentkit.models.catalog.abilities import abilities_of
from agentkit.models.testing.provider import chat_checks, gemini_checks, responses_checks
from agentkit.models.testing.provider.shapes import Desk, Seal
from agentkit.models.wire import gemini, openai_chat, openai_responses
from tests.models.adapters.served import asking, is_continued
from tests.strategies import transcripts, valid_transcripts


class Blind(Seal):
    """Takes any seal for its own: the random blocks bear none."""

    def opened(self, data: str) -> str | None:
        return data

    def holds(self, text: str, signature: str) -> bool:
        return True


class Side(NamedTuple):
    make: Callable[[], Any]
    model: str
    check: Callable[[Any, Desk], None]
    key: str
    module: Any


SIDES = {
    "chat": Side(lambda: OpenAIChatLLM(None), "gpt-4o", chat_checks.check, "messages", openai_chat),
    "chat, marked": Side(lambda: OpenAIChatLLM(None), "gpt-5.6-sol", chat_checks.check, "messages", openai_chat),
    "responses": Side(
        lambda: OpenAIResponsesLLM(None), "gpt-5", responses_checks.check, "input", openai_responses
    ),
    "responses, marked": Side(
        lambda: OpenAIResponsesLLM(None), "gpt-5.6-sol", responses_checks.check, "input", openai_responses
    ),
    "gemini": Side(lambda: GeminiLLM(None), "gemini-3-pro", gemini_checks.check, "contents", gemini),
}  # fmt: skip
sides = pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)


def desk() -> Desk:
    return Desk(Blind(b"k"), len, 8, lambda model: None, None, 0, abilities_of)


def sent(llm: Any, request: ChatRequest) -> Any:
    """The body as JSON makes it."""
    return json.loads(json.dumps(llm.body(request), allow_nan=False))


@sides
@given(st.data())
def test_any_transcript_is_sent_as_the_provider_takes_it(side: Side, data: st.DataObject) -> None:
    """G1, G5."""
    messages = data.draw(transcripts())
    request = asking(*messages, model=side.model, cache_hint=True)
    try:
        body = sent(side.make(), request)
    except EmptyRequestError:
        return
    side.check(body, desk())
    json.dumps(body, ensure_ascii=False).encode()


@sides
def test_message_of_nothing_that_can_be_sent_says_so(side: Side) -> None:
    """E2, G6: sound for one interface, refused by the other."""
    sound = NativeBlock("openai", {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}})
    code = NativeBlock("gemini", {"executableCode": {"code": "1"}})
    body = sent(side.make(), asking(Message("user", [sound, code]), model=side.model))
    side.check(body, desk())
    assert ("no form in this interface" in json.dumps(body)) == (side.key == "input")


@sides
@given(st.data())
def test_growing_transcript_keeps_what_was_sent(side: Side, data: st.DataObject) -> None:
    """K4: the messages of each request begin with those of the request before."""
    messages = data.draw(valid_transcripts())
    ends = [at for at, m in enumerate(messages) if at and m.role == "assistant" and messages[at - 1].role != "system"]
    llm, before = side.make(), None
    for end in [*ends, len(messages)]:
        request = asking(*messages[:end], model=side.model)
        after = sent(llm, request)[side.key]
        assert after == sent(side.make(), request)[side.key]  # G4: with what was known or without
        if before is not None:
            assert is_continued(before, after)
        before = after


@sides
@given(st.data())
def test_sound_transcript_is_sent_unchanged(side: Side, data: st.DataObject) -> None:
    """G3: nothing of it is reported, and the record stays as it is (G2)."""
    messages = tuple(data.draw(valid_transcripts()))
    llm = side.make()
    digests = [message.digest for message in messages]
    view = llm._views.of(asking(*messages, model=side.model))
    assert view.changes == check(messages, llm._views.rules, prefix=view and asking(*messages).prefix_length)
    sent(llm, asking(*messages, model=side.model))
    assert [message.digest for message in messages] == digests


@sides
@pytest.mark.parametrize("length", [20, 1_000])
def test_one_more_message_is_one_more_rendering(side: Side, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wire form of a message is built once; an append to a thousand costs no more than to twenty."""
    rendered: list[Message] = []
    real = side.module.render_message

    def counted(message: Message, *rest: Any) -> Any:
        rendered.append(message)
        return real(message, *rest)

    monkeypatch.setattr(side.module, "render_message", counted)
    messages: list[Message] = [Message("user", "start")]
    while len(messages) < length:
        at = len(messages)
        messages.append(Message("assistant", "look", tool_calls=[ToolCall(f"c{at}", "look", '{"at": 1}')]))
        messages.append(Message("tool", f"result {at}", "look", f"c{at}"))
    llm = side.make()
    llm.body(asking(*messages, model=side.model))
    assert len(rendered) == len(messages)
    for added in (Message("assistant", "done"), Message("user", "more")):
        rendered.clear()
        messages.append(added)
        llm.body(asking(*messages, model=side.model))
        assert len(rendered) <= 1
