"""What the adapter for Anthropic sends, request after request: bytes that stay, marks where the plan has them, and no
work for what was sent before. No client: a body is looked at before it leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import EmptyRequestError, PermanentError
from agentkit.core.contracts.offers import Breakpoint, ToolSchema
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.types import Message, NativeBlock, TextBlock, ThinkingBlock, ToolCall
from agentkit.core.contracts.validity import ANTHROPIC, check
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.wire import anthropic as wire
from agentkit.state.context import PrefixContext, WorkingContext
from agentkit.transcripts import loads
from tests.strategies import transcripts, valid_transcripts

USER = Message("user", "hi")
TOOLS = (ToolSchema("b", "second"), ToolSchema("a", "first"))
SHORT, LONG = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}


def adapter() -> AnthropicLLM:
    return AnthropicLLM(None, model="claude-haiku-4-5")


def body_of(*messages: Message, llm: AnthropicLLM | None = None, **how: Any) -> dict[str, Any]:
    return (llm or adapter()).body(ChatRequest(messages, **how))


def marks_of(body: dict[str, Any]) -> list[tuple[str, int, int, dict[str, str]]]:
    """Every mark of a body in the order of the cache: tier, message, block."""
    found = [("tools", 0, at, t["cache_control"]) for at, t in enumerate(body.get("tools", ())) if "cache_control" in t]
    found += [
        ("system", 0, at, t["cache_control"]) for at, t in enumerate(body.get("system", ())) if "cache_control" in t
    ]
    for number, message in enumerate(body["messages"]):
        for at, block in enumerate(message["content"]):
            if "cache_control" in block:
                found.append(("messages", number, at, block["cache_control"]))
    return found


def unmarked(value: Any) -> Any:
    """The same without any mark."""
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


def blocks_of(body: dict[str, Any]) -> list[str]:
    """Each position of the cache as the text that is sent: its role and block."""
    found = [json.dumps(tool) for tool in body.get("tools", ())] + [json.dumps(one) for one in body.get("system", ())]
    return found + [m["role"] + json.dumps(block) for m in body["messages"] for block in m["content"]]


# Marks


def test_a_mark_stands_on_the_last_block_in_front_of_its_position() -> None:
    talk = (
        Message("system", "one"),
        Message("system", "two"),
        USER,
        Message("assistant", "look", tool_calls=[ToolCall("x", "a"), ToolCall("y", "a")]),
        Message("tool", "1", "a", "x"),
        Message("tool", "2", "a", "y"),
        Message("user", "and?"),
    )
    plan = {
        0: ("tools", 0, 1),
        1: ("system", 0, 0),
        2: ("system", 0, 1),
        3: ("messages", 0, 0),
        4: ("messages", 1, 2),
        5: ("messages", 2, 0),
        6: ("messages", 2, 1),
        7: ("messages", 2, 2),
    }
    for position, place in plan.items():
        body = body_of(*talk, tools=TOOLS, cache_hint=[Breakpoint(position)])
        assert marks_of(body) == [(*place, SHORT)]
        assert unmarked(body) == body_of(*talk, tools=TOOLS)


def test_thinking_and_empty_text_take_no_mark_the_block_in_front_does() -> None:
    thought = Message(
        "assistant", [TextBlock("so"), ThinkingBlock("hm", "s"), NativeBlock("anthropic", {"type": "fallback"})]
    )
    body = body_of(USER, thought, USER, cache_hint=[Breakpoint(2)])
    assert marks_of(body) == [("messages", 1, 0, SHORT)]
    only = Message("assistant", [ThinkingBlock("hm", "s"), ToolCall("x", "a")])
    assert marks_of(body_of(USER, only, Message("tool", "1", "a", "x"), cache_hint=[Breakpoint(2)])) == [
        ("messages", 1, 1, SHORT)
    ]
    assert not wire.takes_mark({"type": "text", "text": ""})
    assert wire.takes_mark({"type": "compaction", "content": "x"})


def test_a_mark_with_nothing_in_front_that_takes_one_is_left_out() -> None:
    assert marks_of(body_of(USER, cache_hint=[Breakpoint(0)])) == []


def test_lifetimes_of_other_providers_become_the_nearest_and_never_rise() -> None:
    talk = [Message("system", "s"), USER, Message("assistant", "a"), USER]
    plan = [Breakpoint(1, "12h"), Breakpoint(2, "30m"), Breakpoint(3, "5m"), Breakpoint(4, "1h")]
    assert [mark for *_, mark in marks_of(body_of(*talk, cache_hint=plan))] == [LONG, LONG, SHORT, SHORT]
    with pytest.raises(ValueError, match="a number and a unit"):
        body_of(*talk, cache_hint=[Breakpoint(1, "forever")])


def test_of_more_marks_than_the_provider_takes_the_first_and_the_last_are_kept() -> None:
    talk = [Message("system", "s")] + [USER, Message("assistant", "a")] * 4 + [USER]
    body = body_of(*talk, cache_hint=[Breakpoint(n, "1h") for n in range(1, len(talk) + 1)])
    assert [(tier, at) for tier, at, *_ in marks_of(body)] == [
        ("system", 0), ("messages", 6), ("messages", 7), ("messages", 8)
    ]  # fmt: skip


def test_positions_that_share_a_block_share_its_mark() -> None:
    body = body_of(Message("system", "s"), USER, Message("user", " "), cache_hint=[Breakpoint(2), Breakpoint(3)])
    assert marks_of(body) == [("messages", 0, 0, SHORT)]


def test_a_bare_hint_is_one_mark_on_the_system_block() -> None:
    for hint in (True, "yes", {"any": 1}):
        body = body_of(Message("system", "one"), Message("system", "two"), USER, cache_hint=hint)
        assert marks_of(body) == [("system", 0, 1, SHORT)]
    assert marks_of(body_of(USER, cache_hint=True)) == []
    assert marks_of(body_of(Message("system", "s"), USER, cache_hint=None)) == []


def test_marks_in_imported_content_are_taken_out_k3() -> None:
    marked = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}, "cache_control": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [], "cache_control": {}}
    talk = [Message("user", [marked]), Message("assistant", [search, found, marked]), USER]
    assert marks_of(body_of(*talk)) == []


def test_a_mark_leaves_what_is_kept_for_the_next_request_as_it_is() -> None:
    llm, talk = adapter(), [Message("system", "s"), USER, Message("assistant", "a"), USER]
    plain = json.dumps(llm.body(ChatRequest(tuple(talk), tools=TOOLS)))
    llm.body(ChatRequest(tuple(talk), tools=TOOLS, cache_hint=[Breakpoint(n) for n in range(5)]))
    assert json.dumps(llm.body(ChatRequest(tuple(talk), tools=TOOLS))) == plain


@given(transcripts(), st.lists(st.integers(0, 12), max_size=6), st.sampled_from(["5m", "1h", "30m"]))
def test_marks_obey_the_provider_on_any_transcript(messages: list[Message], places: list[int], ttl: str) -> None:
    request = ChatRequest(
        tuple(messages), tools=TOOLS, cache_hint=[Breakpoint(min(at, len(messages)), ttl) for at in places]
    )
    try:
        body = adapter().body(request)
    except EmptyRequestError:
        return
    marks = marks_of(body)
    assert len(marks) <= 4
    assert [mark for *_, mark in marks] == sorted([mark for *_, mark in marks], key=lambda mark: "ttl" not in mark)
    for tier, number, at, _ in marks:
        block = body["messages"][number]["content"][at] if tier == "messages" else body[tier][at]
        assert tier == "tools" or wire.takes_mark(block)
    assert unmarked(body) == adapter().body(ChatRequest(tuple(messages), tools=TOOLS))


# Bytes


@given(transcripts())
def test_the_body_of_any_transcript_is_one_that_the_rules_accept(messages: list[Message]) -> None:
    """What is sent, read back, has nothing to repair."""
    try:
        body = adapter().body(ChatRequest(tuple(messages)))
    except EmptyRequestError:
        return
    text = json.dumps(body, ensure_ascii=False).encode().decode()  # no half of a surrogate pair is left
    (read,) = loads(text, format="anthropic-messages")
    sent = read.context.assembled()
    assert check(sent, ANTHROPIC, prefix=len(read.context.prefix.as_messages())) == ()


@given(valid_transcripts(), st.data())
def test_an_append_leaves_every_block_that_was_sent_as_it_was_k4(messages: list[Message], data: st.DataObject) -> None:
    llm, before = adapter(), list[str]()
    ends = [
        at
        for at in range(1, len(messages))
        if messages[at].role == "assistant" and messages[at - 1].role != "assistant"
    ]
    for end in [*ends, len(messages)]:
        head = messages[:end]
        if all(message.role == "system" for message in head):
            continue
        plan = sorted(data.draw(st.sets(st.integers(1, end), max_size=4)))
        body = llm.body(ChatRequest(tuple(head), tools=TOOLS, cache_hint=[Breakpoint(at) for at in plan]))
        now = blocks_of(unmarked(body))
        assert now[: len(before)] == before
        before = now
    fresh = blocks_of(unmarked(adapter().body(ChatRequest(tuple(messages), tools=TOOLS))))
    assert fresh == before


def test_a_closing_block_that_changes_leaves_what_stands_in_front_as_it_was() -> None:
    """Plan, memory and clock stand last and never come twice: the same text with and without them is the same bytes."""
    llm, talk, before = adapter(), [Message("system", "s"), USER], list[str]()
    for clock in ("12:00", "12:05", "12:10"):
        body = llm.body(ChatRequest((*talk, Message("user", f"it is {clock}")), cache_hint=[Breakpoint(len(talk))]))
        now = blocks_of(unmarked(body))
        assert now[: len(before)] == before
        assert marks_of(body)[-1][2] == len(body["messages"][-1]["content"]) - 2
        before = now[:-1]
        talk += [Message("assistant", f"at {clock}"), Message("user", "on")]


def test_the_longest_answer_is_the_requests_own_else_the_adapters() -> None:
    llm = AnthropicLLM(None, model="claude-haiku-4-5", max_tokens=99)
    assert llm.body(ChatRequest((USER,)))["max_tokens"] == 99
    assert llm.body(ChatRequest((USER,), max_tokens=7))["max_tokens"] == 7
    assert llm.body(ChatRequest((USER,), max_tokens=0))["max_tokens"] == 0


# Work


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Every message that is rendered."""
    seen: list[Message] = []
    real = wire.render_turn

    def counted(message: Message) -> dict[str, Any]:
        seen.append(message)
        return real(message)

    monkeypatch.setattr(wire, "render_turn", counted)
    return seen


def long_context(turns: int) -> WorkingContext:
    context = WorkingContext(PrefixContext("be brief"))
    for n in range(turns):
        context.append(Message("user", f"question {n}"))
        context.append(Message("assistant", "look", tool_calls=[ToolCall(f"c{n}", "a", {"n": n})]))
        context.append(Message("tool", f"result {n}", "a", f"c{n}"))
        context.append(Message("assistant", f"answer {n}"))
    return context


def test_only_what_was_added_is_rendered_after_an_append(rendered: list[Message]) -> None:
    llm, context, previous = adapter(), long_context(250), None
    for turn in range(20):
        context.append(Message("user", f"and {turn}?"))
        layout = context.segments(tools=TOOLS, volatile=[Message("user", f"it is {turn} o'clock")])
        hint = layout.breakpoints(previous=previous)
        llm.body(ChatRequest(tuple(layout.messages()), tools=TOOLS, cache_hint=hint, prefix=1))
        if turn:
            assert len(rendered) <= 3  # the answer, the question by itself, and joined with the closing block
        rendered.clear()
        previous = layout
        context.append(Message("assistant", f"done {turn}"))


def test_a_one_message_append_to_a_thousand_renders_one_or_two(rendered: list[Message]) -> None:
    llm, context = adapter(), long_context(250)
    talk = [*context.assembled(), Message("user", "first")]
    llm.body(ChatRequest(tuple(talk)))
    assert len(rendered) >= 1_000
    rendered.clear()
    talk.append(Message("assistant", "yes"))
    talk.append(Message("user", "second"))
    llm.body(ChatRequest(tuple(talk)))
    assert 1 <= len(rendered) <= 2
    rendered.clear()
    llm.body(ChatRequest(tuple(talk)))
    assert rendered == []


def test_two_conversations_with_one_prefix_share_their_system_text() -> None:
    llm, prefix = adapter(), Message("system", "s")
    first = llm.body(ChatRequest((prefix, USER)))
    second = llm.body(ChatRequest((prefix, Message("user", "other"))))
    assert first["system"] is second["system"]


def test_a_prefilled_answer_is_told_from_a_paused_turn() -> None:
    llm = AnthropicLLM(None, model="claude-opus-4-6")
    search = NativeBlock("anthropic", {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})
    llm.body(ChatRequest((USER, Message("assistant", [search]))))
    paused = Message("assistant", "so far", meta={"anthropic": {"stop_reason": "pause_turn"}})
    llm.body(ChatRequest((USER, paused)))
    with pytest.raises(PermanentError):
        llm.body(ChatRequest((USER, Message("assistant", "So"))))


@given(valid_transcripts())
def test_what_is_valid_is_sent_without_a_repair(messages: list[Message]) -> None:
    if not check(messages, ANTHROPIC, prefix=None):
        body = adapter().body(ChatRequest(tuple(messages)))
        total = sum(len(m["content"]) for m in body["messages"]) + len(body.get("system", ()))
        sizes = [1 if message.role == "tool" else len(message.ordered) for message in messages]
        assert total == sum(sizes)


@pytest.mark.parametrize("beta", ["ä-2026", "a\nx-api-key: b", "", 5])
def test_a_beta_that_no_header_can_hold_is_the_callers_mistake(beta: Any) -> None:
    with pytest.raises(ValueError, match=r"options\.betas must be names of beta features"):
        body_of(USER, options={"betas": ["one-2026", beta]})
