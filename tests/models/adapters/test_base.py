"""What the adapters of providers share."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.errors import EmptyRequestError, TransientError
from agentkit.core.contracts.offers import Breakpoint, ToolSchema
from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.types import (
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    TextBlock,
    ThinkingBlock,
)
from agentkit.core.contracts.validity import ANTHROPIC, OPENAI_CHAT, STRICT, repair
from agentkit.models.adapters import base
from tests.strategies import transcripts, valid_transcripts

pytestmark = pytest.mark.anyio

USER = Message("user", "hi")
NAMES = OPENAI_CHAT.tool_names


def chat(count: int, name: str = "a") -> list[Message]:
    """A conversation of `count` questions and answers."""
    found = [Message("system", "be brief")]
    for n in range(count):
        found += [Message("user", f"{name} question {n}"), Message("assistant", f"answer {n}")]
    return [*found, Message("user", f"{name} last")]


# Views


@given(st.lists(transcripts(), min_size=1, max_size=3), st.lists(st.integers(0, 2), max_size=6), st.data())
def test_several_conversations_through_one_adapter_each_get_their_own_repair(
    conversations: list[list[Message]], turns: list[int], data: st.DataObject
) -> None:
    views = base.Views(ANTHROPIC, keep=data.draw(st.integers(1, 3)))
    for turn in turns:
        conversation = conversations[turn % len(conversations)]
        sent = tuple(conversation[: data.draw(st.integers(0, len(conversation)))])
        wanted = repair(sent, ANTHROPIC, prefix=ChatRequest(sent).prefix_length)
        if all(message.role in ("system", "developer") for message in wanted.messages):
            with pytest.raises(EmptyRequestError):
                views.of(ChatRequest(sent))
        else:
            assert views.of(ChatRequest(sent)) == wanted


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Notes how many messages each repair is given."""
    from agentkit.core.contracts.validity import growing

    sizes: list[int] = []

    def counted(messages: Any, *args: Any, **named: Any) -> Any:
        sizes.append(len(messages))
        return repair(messages, *args, **named)

    monkeypatch.setattr(growing, "repair", counted)
    return sizes


def test_each_of_several_conversations_is_carried_on(monkeypatch: pytest.MonkeyPatch) -> None:
    views, talks = base.Views(STRICT), [chat(50, name) for name in "abc"]
    for talk in talks:
        views.of(ChatRequest(tuple(talk)))
    sizes = counting(monkeypatch)
    for _ in range(3):
        for talk in talks:
            talk += [Message("assistant", "ünd"), Message("user", "wëiter")]
            views.of(ChatRequest(tuple(talk)))
    assert max(sizes, default=0) <= 4  # an anchor, an answer, a question


def test_a_fork_is_carried_on_beside_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    views, origin = base.Views(STRICT), chat(50)
    views.of(ChatRequest(tuple(origin)))
    fork = [*origin, Message("assistant", "to thé left"), Message("user", "on")]
    origin += [Message("assistant", "to thé right"), Message("user", "on")]
    views.of(ChatRequest(tuple(fork)))
    views.of(ChatRequest(tuple(origin)))
    sizes = counting(monkeypatch)
    for talk in (fork, origin, fork, origin):
        talk += [Message("assistant", "ünd"), Message("user", "wëiter")]
        views.of(ChatRequest(tuple(talk)))
    assert len([size for size in sizes if size > 4]) <= 1  # the one that did not get the common view


def test_only_so_many_conversations_are_kept() -> None:
    views = base.Views(STRICT, keep=2)
    for name in "abcde":
        views.of(ChatRequest(tuple(chat(5, name))))
    assert len(views._known) == 2
    with pytest.raises(ValueError, match="at least 1"):
        base.Views(STRICT, keep=0)


def test_nothing_but_system_text_is_refused_before_the_network() -> None:
    with pytest.raises(EmptyRequestError):
        base.Views(OPENAI_CHAT).of(ChatRequest((Message("system", "s"),)))
    with pytest.raises(EmptyRequestError):
        base.Views(OPENAI_CHAT).of(ChatRequest(()))


# Marks


def test_a_plan_is_read_by_position_and_one_behind_the_end_is_refused() -> None:
    request = ChatRequest((USER, USER), cache_hint=[Breakpoint(2), Breakpoint(1, "1h")])
    assert base.planned_marks(request) == (Breakpoint(1, "1h"), Breakpoint(2))
    for hint in (None, True, (), "yes", {"a": 1}):
        assert base.planned_marks(ChatRequest((USER,), cache_hint=hint)) is None
    with pytest.raises(ValueError, match="position 3, but there are only 1"):
        base.planned_marks(ChatRequest((USER,), cache_hint=[Breakpoint(3)]))


# Tools, choice, form


def test_tools_are_the_same_bytes_whatever_their_order_and_rendered_once_k2() -> None:
    made: list[str] = []

    def render(tool: ToolSchema) -> dict[str, Any]:
        made.append(tool.name)
        return {"name": tool.name, "parameters": base.parameters_of(tool)}

    first = (ToolSchema("b", "", {"type": "object", "properties": {"z": {}, "a": {}}}), ToolSchema("a"))
    second = (ToolSchema("a"), ToolSchema("b", "", {"properties": {"a": {}, "z": {}}, "type": "object"}))
    forms = base.ToolForms(render, NAMES)
    text = json.dumps(forms.of(first).forms)
    assert forms.of(first) is forms.of(first)
    assert made == ["a", "b"]
    assert json.dumps(forms.of(second).forms) == text
    assert forms.of(None) == forms.of(()) == ([], {})
    assert base.parameters_of(ToolSchema("x")) == {"type": "object", "properties": {}}
    with pytest.raises(ValueError, match="two tools are named 'a'"):
        forms.of((ToolSchema("a", "one"), ToolSchema("a", "two")))
    with pytest.raises(ValueError, match="two tools are named 'a'"):
        forms.of((second[0], second[0]))


def test_a_tool_name_that_the_provider_does_not_take_is_spelled_by_its_rules() -> None:
    """The same spelling in every process, and one that leads back; two tools under one spelling are refused."""
    forms = base.ToolForms(lambda tool: {"name": tool.name}, NAMES)
    long, odd, plain = ToolSchema("x" * 80), ToolSchema("files.read"), ToolSchema("look")
    offered = forms.of((long, odd, plain))
    cut = NAMES.fit(long.name)
    assert [form["name"] for form in offered.forms] == sorted(["files_read", "look", cut])
    assert len(cut) == 64
    assert offered.names == {"files_read": "files.read", cut: long.name}
    with pytest.raises(ValueError, match=r"'files.read' and 'files_read' would both be sent as 'files_read'"):
        forms.of((odd, ToolSchema("files_read")))
    with pytest.raises(ValueError, match="a tool has no name"):
        forms.of((ToolSchema(""),))
    assert base.choice_of({"name": "files.read"}, NAMES) == base.Choice("tool", "files_read")


def test_a_choice_of_tools_is_read_in_every_spelling() -> None:
    assert base.choice_of(None, NAMES) is None
    for spelling, kind in (
        ("auto", "auto"),
        ("any", "any"),
        ("required", "any"),
        ("none", "none"),
        ({"type": "any"}, "any"),
    ):
        assert base.choice_of(spelling, NAMES) == base.Choice(kind)
    for named in ({"name": "f"}, {"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}):
        assert base.choice_of(named, NAMES) == base.Choice("tool", "f")
    native = {"type": "tool", "name": "f", "disable_parallel_tool_use": True}
    assert base.choice_of(native, NAMES) == base.Choice("native", raw=native)
    with pytest.raises(ValueError, match="tool_choice must be auto"):
        base.choice_of("perhaps", NAMES)
    with pytest.raises(TypeError, match="tool_choice must be a str or a mapping"):
        base.choice_of(3, NAMES)


def test_a_response_format_is_read_in_every_spelling() -> None:
    class Model:
        @staticmethod
        def model_json_schema() -> dict[str, Any]:
            return {"type": "object", "title": "Model"}

    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert base.form_of(None) is base.form_of({"type": "text"}) is None
    assert base.form_of({"type": "json_object"}) == base.Form("answer", None)
    assert base.form_of(schema) == base.Form("answer", schema)
    assert base.form_of({**schema, "title": "A name/b"}) == base.Form("A_name_b", {**schema, "title": "A name/b"})
    chat_form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    assert base.form_of(chat_form) == base.Form("n", schema, True)
    assert base.form_of({"type": "json_schema", "schema": schema}) == base.Form("answer", schema)
    assert base.form_of(Model) == base.Form("Model", {"type": "object", "title": "Model"})
    Model.__name__ = "Page[int]"
    assert base.form_of(Model) == base.Form("Page_int_", {"type": "object", "title": "Model"})
    with pytest.raises(TypeError, match="under `schema`"):
        base.form_of({"type": "json_schema"})
    with pytest.raises(TypeError, match="response_format must be"):
        base.form_of(5)


def test_a_setting_that_the_model_refuses_is_left_out_and_named() -> None:
    request = ChatRequest((USER,), temperature=0.3, options={"top_p": 0.5, "cache_key": "k", "nested": {"a": [1]}})
    kept = base.settings_of(request, "nobody-knows")
    assert tuple(kept) == ({"temperature": 0.3, "top_p": 0.5, "cache_key": "k", "nested": {"a": [1]}}, ())
    assert type(kept.values["nested"]) is dict
    left = base.settings_of(request, "claude-opus-4-7")
    assert tuple(left) == ({"cache_key": "k", "nested": {"a": [1]}}, ("temperature", "top_p"))
    assert base.settings_of(replace(request, temperature=None), "claude-opus-4-7").dropped == ("top_p",)


def test_lone_surrogates_beside_the_messages_are_replaced_u1() -> None:
    half = "a\ud83d"
    tool = ToolSchema("t", half, {"type": "object", "properties": {half: {"description": half}}})
    request = ChatRequest((USER,), tools=(tool,), options={"stop": [half], "metadata": {half: half}, "cache_key": half})
    form = base.form_of({"type": "object", "description": half})
    forms = base.ToolForms(lambda t: {"name": t.name, "about": t.description, "schema": base.parameters_of(t)}, NAMES)
    assert form is not None
    sent = json.dumps([base.settings_of(request, "m").values, form.schema, forms.of((tool,))], ensure_ascii=False)
    assert sent.encode().decode().count("a\ufffd") == 8


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"temperature": float("nan")}, ValueError, "temperature must be a finite number, not nan"),
        ({"metadata": {"a": [b"x"]}}, TypeError, r"metadata.a\[0\] must be JSON data, not bytes"),
        ({"metadata": {1: 2}}, TypeError, "metadata has the key 1; keys must be str"),
    ],
)
def test_an_option_that_json_cannot_carry_is_named(options: Any, error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        base.settings_of(ChatRequest((USER,), options=options), "m")


def test_an_error_about_a_request_without_content_names_its_blocks() -> None:
    """E1, E2: a picture of no bytes, blanks and thinking alone are no request, and who sent them is told which."""
    empty = (
        Message("user", [ImageBlock(b""), TextBlock(" ")]),
        Message("user", [DocumentBlock("")]),
        Message("assistant", [ThinkingBlock("hm")]),
        Message("user", [NativeBlock("openai", {"type": "input_audio"})]),
        Message("user"),
    )
    with pytest.raises(EmptyRequestError) as caught:
        base.Views(ANTHROPIC).of(ChatRequest((Message("system", "s"), *empty)))
    assert str(caught.value) == (
        "nothing of the request can be sent: messages[1] (user) has ImageBlock without bytes or reference, TextBlock "
        "of blanks; messages[2] (user) has DocumentBlock without bytes or reference; messages[3] (assistant) has "
        "ThinkingBlock; messages[4] (user) has NativeBlock of 'openai'; messages[5] (user) has no content"
    )
    with pytest.raises(EmptyRequestError, match="at least one message besides system text"):
        base.Views(ANTHROPIC).of(ChatRequest((Message("system", "s"),)))


def test_a_model_is_named_by_the_request_or_the_adapter() -> None:
    assert base.model_of(ChatRequest((USER,), "mine"), "other") == "mine"
    assert base.model_of(ChatRequest((USER,)), "other") == "other"
    with pytest.raises(ValueError, match="no model"):
        base.model_of(ChatRequest((USER,)), None)


@given(valid_transcripts())
def test_what_was_repaired_and_left_out_stands_in_the_meta(messages: list[Message]) -> None:
    view = repair(tuple(messages), ANTHROPIC)
    meta = base.reported("p", {"id": "x", "none": None}, base.Settings({}, ("top_p",)), view, {"a_b": "a.b"})
    assert meta["p"] == {"id": "x"}
    assert meta["dropped"] == ("top_p",)
    assert meta["renamed"] == {"a_b": "a.b"}
    assert meta.get("repaired", ()) == tuple((change.code, change.index) for change in view.changes)


# Clients and streams


class Sent:
    """A stream as clients have it: events with a name and data."""

    def __init__(self, *data: str) -> None:
        self.events = [type("Event", (), {"event": None, "data": one})() for one in data]
        self.closed = 0

    async def _iter_events(self) -> AsyncIterator[Any]:
        for event in self.events:
            yield event

    async def close(self) -> None:
        self.closed += 1


async def test_events_keep_the_order_of_their_keys_and_the_stream_is_closed() -> None:
    stream = Sent('{"b": 1, "a": 2}', "", "[DONE]")
    found = [event async for event in base.raw_events(stream)]
    assert [list(event.data) for event in found] == [["b", "a"]]
    assert stream.closed == 1


async def test_a_cut_event_is_a_fault_that_may_pass_and_closes_the_stream() -> None:
    stream = Sent('{"b": 1}', '{"b": ')
    with pytest.raises(TransientError, match="cut off"):
        [event async for event in base.raw_events(stream)]
    assert stream.closed == 1


async def test_a_stream_that_is_left_is_closed() -> None:
    stream = Sent('{"b": 1}', '{"b": 2}')
    events = base.raw_events(stream)
    await anext(events)
    await events.aclose()
    assert stream.closed == 1


async def test_a_stream_of_objects_is_read_by_their_fields() -> None:
    class Event:
        def model_dump(self, **how: Any) -> dict[str, Any]:
            assert how == {"mode": "json", "exclude_unset": True}
            return {"type": "t"}

    async def stream() -> AsyncIterator[Any]:
        yield Event()
        yield {"type": "u"}

    assert [event.name async for event in base.raw_events(stream())] == ["t", "u"]
    with pytest.raises(TypeError, match="cannot read a int"):
        base.plain(5)


def test_the_clients_own_retries_are_turned_off() -> None:
    told: list[dict[str, Any]] = []

    class Client:
        def with_options(self, **options: Any) -> Client:
            told.append(options)
            return Client()

    client = Client()
    assert base.without_retries(client, 5.0) is not client
    base.without_retries(client, None)
    assert told == [{"max_retries": 0, "timeout": 5.0}, {"max_retries": 0}]
    assert base.without_retries("a double", 5.0) == "a double"
