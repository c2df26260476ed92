"""`check` and `repair`, code by code; faults carry their number."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from agentkit.core.contracts.errors import EmptyRequestError
from agentkit.core.contracts.framing import frame
from agentkit.core.contracts.types import (
    Block,
    CallMark,
    DocumentBlock,
    ImageBlock,
    Message,
    NativeBlock,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    mark,
    unmark,
)
from agentkit.core.contracts.validity import (
    ANTHROPIC,
    CODES,
    FIRST,
    GEMINI,
    MEDIA_MOVED,
    NO_OUTPUT,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    STAND_IN,
    STRICT,
    Problem,
    Rules,
    Spelling,
    check,
    open_calls,
    repair,
    require_request,
    single,
)

PROVIDERS = (STRICT, ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES, GEMINI)
SAMPLE = Path(__file__).parents[2] / "data" / "transcripts" / "claude-code" / "small-edit-session.jsonl"

USER = Message("user", "do it")
NEXT = Message("user", "next")
DONE = Message("assistant", "done")
MARKED = {"cache_control": {"type": "ephemeral"}}
PNG = ImageBlock(b"png", "image/png")
STOPPED = Message("tool", STAND_IN, "f", "a", is_error=True)


def ask(*ids: str, text: str = "", name: str = "f") -> Message:
    """An assistant message with a call for each id."""
    return Message("assistant", text, tool_calls=[ToolCall(i, name) for i in ids])


def answer(call_id: str | None, text: str = "ok", name: str | None = None) -> Message:
    return Message("tool", text, name, call_id)


def anthropic(**payload: Any) -> NativeBlock:
    return NativeBlock("anthropic", payload)


def call_ids(view: Sequence[Message]) -> list[list[str]]:
    return [[call.id for call in message.tool_calls] for message in view if message.role == "assistant"]


def results(view: Sequence[Message]) -> list[tuple[str | None, str]]:
    return [(message.tool_call_id, message.content) for message in view if message.role == "tool"]


def codes(problems: Sequence[Problem]) -> list[str]:
    return [problem.code for problem in problems]


# Each row: the input, the codes with their places, and the view.
ROWS: dict[str, tuple[list[Message], list[tuple[str, int]], list[Message]]] = {
    "P9 result without a call": ([USER, answer("a"), DONE], [("orphan", 1)], [USER, DONE]),
    "P9 result before its call": (
        [USER, answer("a"), ask("a"), answer("a", "yes")],
        [("orphan", 1)],
        [USER, ask("a"), answer("a", "yes")],
    ),
    "P3 text between call and result": (
        [USER, ask("a", "b"), answer("b", "2"), NEXT, answer("a", "1")],
        [("moved", 3)],
        [USER, ask("a", "b"), answer("b", "2"), answer("a", "1"), NEXT],
    ),
    "P4 interrupted call": (
        [USER, ask("a", "b"), answer("b"), NEXT],
        [("unanswered", 1)],
        [USER, ask("a", "b"), answer("b"), STOPPED, NEXT],
    ),
    "P4 call at the very end": ([USER, ask("a")], [("unanswered", 1)], [USER, ask("a"), STOPPED]),
    "P6 late result displaces the stand-in": (
        [USER, ask("a"), NEXT, DONE, answer("a", "late")],
        [("late", 4)],
        [USER, ask("a"), answer("a", "late"), NEXT, DONE],
    ),
    "P6 late result displaces a pending one": (
        [USER, ask("a"), mark(answer("a", "wait"), "pending"), DONE, answer("a", "late"), NEXT],
        [("duplicate", 2), ("late", 4)],
        [USER, ask("a"), answer("a", "late"), DONE, NEXT],
    ),
    "P8 late result already answered in what was sent": (
        [USER, ask("a"), NEXT, DONE, mark(answer("a", "late"), "late")],
        [("unanswered", 1), ("late", 4)],
        [
            USER,
            ask("a"),
            STOPPED,
            NEXT,
            DONE,
            Message("user", frame("late-tool-result", "late", call="a", tool="f")),
        ],
    ),
    "P8 two results, the first stays": (
        [USER, ask("a"), answer("a", "1"), answer("a", "2"), NEXT, DONE, answer("a", "3")],
        [("duplicate", 3), ("duplicate", 6)],
        [USER, ask("a"), answer("a", "1"), NEXT, DONE],
    ),
    "P8 real over synthetic": (
        [USER, ask("a"), mark(answer("a", "gone"), "synthetic"), answer("a", "real")],
        [("duplicate", 2)],
        [USER, ask("a"), answer("a", "real")],
    ),
    "P8 final over pending over synthetic": (
        [
            USER,
            ask("a"),
            mark(answer("a", "gone"), "synthetic"),
            mark(answer("a", "wait"), "pending"),
            answer("a", "real"),
            mark(answer("a", "wait"), "pending"),
        ],
        [("duplicate", 2), ("duplicate", 3), ("duplicate", 5)],
        [USER, ask("a"), answer("a", "real")],
    ),
    "P7 one id for several calls": (
        [USER, ask("a", "a"), answer("a", "1"), answer("a", "2"), NEXT, ask("a"), answer("a", "3")],
        [("id", 1), ("id", 3), ("id", 5), ("id", 6)],
        [USER, ask("a", "a_2"), answer("a", "1"), answer("a_2", "2"), NEXT, ask("a_3"), answer("a_3", "3")],
    ),
    "P7 a number that is taken, before and after": (
        [USER, ask("a_2", "a", "a", "a_3"), *[answer(i) for i in ("a_2", "a", "a", "a_3")]],
        [("id", 1), ("id", 1), ("id", 4), ("id", 5)],
        [
            USER,
            ask("a_2", "a", "a_3", "a_3_2"),
            *[answer(i) for i in ("a_2", "a", "a_3", "a_3_2")],
        ],
    ),
    "P7 empty ids on both sides": (
        [USER, ask("", ""), answer(None, "1"), answer("", "2")],
        [("id", 1), ("id", 1), ("id", 2), ("id", 3)],
        [USER, ask("call-1", "call-2"), answer("call-1", "1"), answer("call-2", "2")],
    ),
    "P7 ill-formed ids": (
        [USER, ask("x.y", "x:y"), answer("x:y", "2"), answer("x.y", "1")],
        [("id", 1), ("id", 1), ("id", 2), ("id", 3)],
        [USER, ask("x_y", "x_y_2"), answer("x_y_2", "2"), answer("x_y", "1")],
    ),
    "E7 summary, then user": (
        [Message("user", "summary"), USER, DONE],
        [("same-role", 1)],
        [Message("user", [TextBlock("summary"), TextBlock("do it")]), DONE],
    ),
    "E7 adjacent assistants": (
        [USER, Message("assistant", "one"), ask("a", text="two"), Message("assistant", "three"), answer("a")],
        [("same-role", 2), ("same-role", 3)],
        [
            USER,
            Message("assistant", [TextBlock("one"), TextBlock("two"), ToolCall("a", "f"), TextBlock("three")]),
            answer("a"),
        ],
    ),
    "P10 window begins with the assistant": (
        [Message("system", "s"), DONE, NEXT],
        [("first", 1)],
        [Message("system", "s"), Message("user", FIRST), DONE, NEXT],
    ),
    "E6 late system text": (
        [Message("system", "s"), USER, Message("developer", "be brief"), DONE],
        [("late-system", 2), ("same-role", 2)],
        [
            Message("system", "s"),
            Message(
                "user",
                [TextBlock("do it"), TextBlock(frame("system-message", "be brief", role="developer"))],
            ),
            DONE,
        ],
    ),
    "E6 unknown role": (
        [Message("critic", "no good"), DONE],
        [("role", 0)],
        [Message("user", frame("message", "no good", role="critic")), DONE],
    ),
    "E6 function is a result paired by name": (
        [
            USER,
            Message("assistant", tool_calls=[ToolCall("1", "f"), ToolCall("2", "g")]),
            Message("function", "of g", "g"),
            Message("function", "of f", "f"),
        ],
        [("role", 2), ("id", 2), ("role", 3), ("id", 3)],
        [
            USER,
            Message("assistant", tool_calls=[ToolCall("1", "f"), ToolCall("2", "g")]),
            answer("2", "of g", "g"),
            answer("1", "of f", "f"),
        ],
    ),
    "E1 blank text beside a call": (
        [USER, Message("assistant", [TextBlock(" \n"), ToolCall("a", "f")]), answer("a")],
        [("blank", 1)],
        [USER, ask("a"), answer("a")],
    ),
    "E1 silent result": (
        [USER, ask("a"), answer("a", "  ")],
        [("empty", 2)],
        [USER, ask("a"), answer("a", NO_OUTPUT)],
    ),
    "E2 turn of blanks": (
        [USER, Message("assistant", "\t"), NEXT],
        [("empty", 1), ("same-role", 2)],
        [Message("user", [TextBlock("do it"), TextBlock("next")])],
    ),
    "E2 aborted turn of thinking only": (
        [USER, Message("assistant", [ThinkingBlock("hm", "sig")]), NEXT, DONE],
        [("empty", 1), ("same-role", 2)],
        [Message("user", [TextBlock("do it"), TextBlock("next")]), DONE],
    ),
    "E3 absent content": (
        [USER, Message("assistant", None), Message("user", None)],
        [("empty", 1), ("empty", 2)],
        [USER],
    ),
    "E4 results kept as blocks of a user message": (
        [
            USER,
            ask("a", "b"),
            Message(
                "user",
                [
                    TextBlock("and now?"),
                    anthropic(type="tool_result", tool_use_id="b", content="2"),
                    anthropic(
                        type="tool_result",
                        tool_use_id="a",
                        is_error=True,
                        content=[{"type": "text", "text": "1", **MARKED}],
                    ),
                ],
            ),
        ],
        [("native-result", 2), ("native-result", 2), ("marks", 2)],
        [
            USER,
            ask("a", "b"),
            answer("b", "2"),
            Message("tool", "1", tool_call_id="a", is_error=True),
            Message("user", "and now?"),
        ],
    ),
    "E5 arguments that are no object": (
        [USER, Message("assistant", tool_calls=[ToolCall("a", "f", "{broken")]), answer("a")],
        [("arguments", 1)],
        [USER, Message("assistant", tool_calls=[ToolCall("a", "f", {"_raw": "{broken"})]), answer("a")],
    ),
    "E8 unsigned thinking": (
        [USER, Message("assistant", [ThinkingBlock("hm"), ThinkingBlock("so", "sig"), TextBlock("hi")])],
        [("thinking", 1)],
        [USER, Message("assistant", [ThinkingBlock("so", "sig"), TextBlock("hi")])],
    ),
    "E8 thinking at the end": (
        [USER, Message("assistant", [TextBlock("hi"), RedactedThinkingBlock("data")])],
        [("thinking", 1)],
        [USER, Message("assistant", "hi")],
    ),
    "U1 lone surrogates": (
        [Message("user", "a\ud800b\udc00\ud83d\ude00"), DONE],
        [("surrogate", 0)],
        [Message("user", "a\ufffdb\ufffd😀"), DONE],
    ),
    "U1 in arguments": (
        [USER, Message("assistant", tool_calls=[ToolCall("a", "f", '{"q": "\\ud800"}')]), answer("a")],
        [("surrogate", 1)],
        [USER, Message("assistant", tool_calls=[ToolCall("a", "f", {"q": "\ufffd"})]), answer("a")],
    ),
    "U1 in signed thinking": (
        [USER, Message("assistant", [ThinkingBlock("\ud800", "sig"), TextBlock("hi")])],
        [("surrogate", 1)],
        [USER, Message("assistant", "hi")],
    ),
    "K3 marks inside content": (
        [Message("user", [TextBlock(text, MARKED) for text in "abcde"]), DONE],
        [("marks", 0)] * 5,
        [Message("user", [TextBlock(text) for text in "abcde"]), DONE],
    ),
    "calls on a user message": (
        [Message("user", "hi", tool_calls=[ToolCall("a", "f")]), answer("a"), DONE],
        [("calls-on", 0), ("orphan", 1)],
        [Message("user", "hi"), DONE],
    ),
    "tool names": (
        [USER, ask("a", name="ns.tool x"), answer("a", "ok", "ns.tool x"), ask("b", name=""), answer("b")],
        [("name", 1), ("name", 2), ("name", 3)],
        [
            USER,
            ask("a", name="ns_tool_x"),
            answer("a", "ok", "ns_tool_x"),
            ask("b", name="unnamed_tool"),
            answer("b"),
        ],
    ),
    "image in a result": (
        [USER, ask("a"), Message("tool", [PNG, TextBlock("seen")], tool_call_id="a"), NEXT],
        [("media", 2), ("same-role", 3)],
        [
            USER,
            ask("a"),
            answer("a", "seen"),
            Message("user", [TextBlock("[files of the result of tool call a]"), PNG, TextBlock("next")]),
        ],
    ),
    "nothing but an image in a result": (
        [USER, ask("a"), Message("tool", [PNG], tool_call_id="a")],
        [("media", 2)],
        [
            USER,
            ask("a"),
            answer("a", MEDIA_MOVED),
            Message("user", [TextBlock("[files of the result of tool call a]"), PNG]),
        ],
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_strict_repair(name: str) -> None:
    given, expected, view = ROWS[name]
    repaired = repair(given)
    assert [(problem.code, problem.index) for problem in repaired.changes] == expected
    assert list(repaired.messages) == view
    assert check(repaired.messages) == ()
    assert check(given) == repaired.changes


def test_every_code_has_a_row() -> None:
    provider_only = {"reasoning", "server-call", "foreign"}
    seen = {code for _, expected, _ in ROWS.values() for code, _ in expected}
    assert seen | provider_only == set(CODES)


# What only some providers object to


SERVER_CALL = anthropic(type="server_tool_use", id="srvtoolu_1", name="web_search", input={"query": "x", **MARKED})
SERVER_RESULT = anthropic(type="web_search_tool_result", tool_use_id="srvtoolu_1", content=[])
REASONING = NativeBlock("openai", {"type": "reasoning", "id": "rs_1", "summary": [], "content": []})


def test_server_call_stays_in_a_paused_turn() -> None:
    paused = [USER, Message("assistant", [TextBlock("let me see"), SERVER_CALL])]
    assert check(paused, ANTHROPIC) == ()
    over = repair([*paused, NEXT], ANTHROPIC)
    assert codes(over.changes) == ["server-call"]
    assert over.messages == (USER, Message("assistant", "let me see"), NEXT)
    resumed = [*paused, Message("assistant", [SERVER_RESULT, TextBlock("found")]), NEXT]
    assert codes(check(resumed, ANTHROPIC)) == ["same-role"]


def test_server_call_and_result_go_together() -> None:
    whole = [USER, Message("assistant", [SERVER_CALL, SERVER_RESULT, TextBlock("found")]), NEXT]
    assert check(whole, ANTHROPIC) == ()
    lone = [USER, Message("assistant", [SERVER_RESULT, TextBlock("found")]), Message("user", [SERVER_RESULT])]
    assert codes(check(lone, ANTHROPIC)) == ["server-call", "server-call", "empty"]
    assert repair(lone, ANTHROPIC).messages == (USER, Message("assistant", "found"))


def test_repeated_server_call_is_numbered() -> None:
    """P11: history that a merge repeats keeps its pairs."""
    turn = Message("assistant", [SERVER_CALL, SERVER_RESULT, TextBlock("found")])
    view = repair([USER, turn, NEXT, turn], ANTHROPIC)
    assert codes(view.changes) == ["id"]
    assert view.messages[1] is turn
    payloads = [block.payload for block in view.messages[3].blocks if isinstance(block, NativeBlock)]
    assert [payloads[0]["id"], payloads[1]["tool_use_id"]] == ["srvtoolu_1_2", "srvtoolu_1_2"]
    assert list(payloads[0]) == list(SERVER_CALL.payload)


def test_k3_mark_on_a_call() -> None:
    """An importer keeps what stood beside a call in its `meta`."""
    wire = {"type": "tool_use", "id": "a", "name": "f", "input": {}, "caller": {"type": "direct"}, **MARKED}
    view = repair([USER, Message("assistant", [wire]), answer("a")])
    assert codes(view.changes) == ["marks"]
    assert view.messages[1].tool_calls[0].meta == {"caller": {"type": "direct"}}


def test_deep_payloads_are_mended() -> None:
    """Nested as deeply as a block can be: deeper than a recursive walk could follow."""
    inner: Any = {"text": "\ud800", **MARKED}
    for _ in range(190):
        inner = {"content": [inner]}
    view = repair([Message("user", [TextBlock("hi"), NativeBlock("x", inner)])])
    assert codes(view.changes) == ["marks", "surrogate"]
    block = view.messages[0].blocks[1]
    assert isinstance(block, NativeBlock)
    found = block.payload
    while "content" in found:
        found = found["content"][0]
    assert found == {"text": "\ufffd"}


def test_data_is_no_cache_mark() -> None:
    """K3: only what stands on a block is a mark, not what a tool was given."""
    marked = anthropic(type="document", source={"type": "content", "content": [{"type": "text", **MARKED}]}, **MARKED)
    view = repair([Message("user", [marked]), Message("assistant", [SERVER_CALL])], ANTHROPIC)
    assert codes(view.changes) == ["marks"]
    block = view.messages[0].blocks[0]
    assert isinstance(block, NativeBlock)
    assert block.payload == {"type": "document", "source": {"type": "content", "content": [{"type": "text"}]}}


def test_e9_reasoning_leads_to_something() -> None:
    """Its empty lists stay."""
    kept = [USER, Message("assistant", [REASONING, TextBlock("hi")])]
    assert check(kept, OPENAI_RESPONSES) == ()
    lone = [*kept, NEXT, Message("assistant", [REASONING, TextBlock(" ")]), NEXT, Message("user", [REASONING])]
    view = repair(lone, OPENAI_RESPONSES)
    assert codes(view.changes) == ["blank", "reasoning", "empty", "reasoning", "empty"]
    assert view.messages == (*kept, NEXT, NEXT)


def test_e9_reasoning_before_a_call_in_the_next_message() -> None:
    view = repair([USER, Message("assistant", [REASONING]), ask("a"), answer("a")], OPENAI_RESPONSES)
    assert codes(view.changes) == ["same-role"]
    assert view.messages[1].ordered == (REASONING, ToolCall("a", "f"))


@pytest.mark.parametrize("rules", PROVIDERS[1:], ids=lambda rules: rules.name)
def test_foreign_blocks_are_left_out(rules: Rules) -> None:
    own = NativeBlock(rules.provider or "", {"type": "file"})
    others = [NativeBlock(p, {"type": "file"}) for p in ("anthropic", "openai", "gemini", "unknown")]
    view = repair([Message("user", [TextBlock("hi"), *others])], rules)
    assert codes(view.changes) == ["foreign"] * 3
    assert view.messages[0].blocks == (TextBlock("hi"), own)


def test_native_blocks_are_not_judged_strictly() -> None:
    blocks: list[Block] = [NativeBlock("x", {"type": "y"}), SERVER_CALL, REASONING, TextBlock("hi")]
    assert check([Message("user", blocks), Message("assistant", [REASONING]), NEXT]) == ()


@pytest.mark.parametrize(
    ("rules", "moved"),
    [(STRICT, 2), (ANTHROPIC, 1), (OPENAI_CHAT, 2), (OPENAI_RESPONSES, 0), (GEMINI, 2)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_media_in_results_by_provider(rules: Rules, moved: int) -> None:
    """Anthropic takes them in results, but not in those that report a failure."""
    fine = Message("tool", [TextBlock("1"), PNG], tool_call_id="a")
    failed = Message("tool", [TextBlock("2"), DocumentBlock(b"pdf")], tool_call_id="b", is_error=True)
    view = repair([USER, ask("a", "b"), fine, failed], rules)
    assert codes(view.changes) == ["media"] * moved
    assert results(view.messages) == [("a", "1"), ("b", "2")]
    kept = [block for message in view.messages for block in message.blocks if not isinstance(block, TextBlock)]
    assert sorted(kept, key=repr) == [DocumentBlock(b"pdf"), PNG]


def test_pictures_of_the_assistant_and_the_system() -> None:
    messages = [Message("system", [TextBlock("s"), PNG]), USER, Message("assistant", [PNG]), NEXT]
    view = repair(messages, OPENAI_CHAT).messages
    assert [message.role for message in view] == ["system", "user", "user", "user", "user"]
    assert [message.content for message in view] == [
        "s",
        "[files of the system text]",
        "do it",
        "[files of the assistant's message]",
        "next",
    ]
    assert check([USER, Message("assistant", [PNG])], GEMINI) == ()


@pytest.mark.parametrize("rules", [OPENAI_CHAT, OPENAI_RESPONSES], ids=lambda rules: rules.name)
def test_e6_late_system_text_kept_in_place(rules: Rules) -> None:
    assert check([Message("system", "s"), USER, Message("developer", "d"), NEXT, DONE], rules) == ()
    late = [USER, ask("a"), Message("system", "s"), answer("a")]
    assert codes(check(late, rules)) == ["moved"]
    assert [message.role for message in repair(late, rules).messages] == ["user", "assistant", "tool", "system"]


def test_e6_system_text_behind_the_prefix_gains_no_rank() -> None:
    messages = [Message("system", "prompt"), Message("system", "note"), USER, DONE]
    assert check(messages) == ()
    assert check(messages, prefix=2) == ()
    view = repair(messages, prefix=1)
    assert codes(view.changes) == ["late-system", "same-role"]
    assert view.messages[0] is messages[0]
    assert view.messages[1].ordered == (
        TextBlock(frame("system-message", "note", role="system")),
        TextBlock("do it"),
    )
    assert view.places[1] == (0, 1)
    assert repair(messages, OPENAI_CHAT, prefix=1).messages == tuple(messages)


def test_ids_by_provider() -> None:
    long = "codex.mcp__" + "x" * 80
    lengths = {}
    for rules in PROVIDERS:
        view = repair([USER, ask(long, long), answer(long, "1"), answer(long, "2")], rules).messages
        ((first, second),) = call_ids(view)
        assert results(view) == [(first, "1"), (second, "2")]
        lengths[rules.name] = len(first), len(second)
    assert lengths == {
        "strict": (40, 40),
        "anthropic": (64, 64),
        "openai-chat": (40, 40),
        "openai-responses": (64, 64),
        "gemini": (91, 93),
    }


def test_long_ids_stay_apart() -> None:
    """P7: two ids that differ behind the limit are two calls."""
    one, two = "x" * 60 + "1", "x" * 60 + "2"
    view = repair([USER, ask(one, two), answer(two, "2"), answer(one, "1")]).messages
    ((first, second),) = call_ids(view)
    assert first != second
    assert results(view) == [(second, "2"), (first, "1")]


def test_tool_names_are_mapped_alike_everywhere() -> None:
    """An adapter maps the names of its tools with the same function."""
    view = repair([USER, ask("a", name="näme"), answer("a", name="näme")], GEMINI).messages
    assert view[1].tool_calls[0].name == view[2].name == GEMINI.tool_names.fit("näme") == "n_me"
    assert GEMINI.tool_names.fit("1st") == "_1st"


def test_spelling_needs_room_for_numbers() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        Spelling("a-z", 8)


# Pairing


def test_p2_parallel_calls_cut_in_the_middle() -> None:
    batch = [USER, ask("a", "b", "c"), answer("a"), answer("b"), answer("c"), NEXT]
    for end in range(2, 5):
        assert codes(check(batch[:end])) == ["unanswered"] * (5 - end)
    for start in range(2, 5):
        assert codes(check(batch[start:])) == ["orphan"] * (5 - start)


def test_p5_dead_call_holds_nothing_up() -> None:
    dead, last = ask("a"), ask("b", "c")
    messages = [USER, dead, NEXT, last, answer("c")]
    assert open_calls(messages) == (last.tool_calls[0],)
    assert open_calls([USER, dead, NEXT, DONE]) == ()


def test_p6_pending_call_stays_open() -> None:
    running = ask("a", "b")
    messages = [USER, running, mark(answer("a", "wait"), "pending"), answer("b"), NEXT, DONE]
    assert open_calls(messages)[0] is running.tool_calls[0]
    assert open_calls([*messages, answer("a", "late")]) == ()
    assert open_calls([*messages, mark(answer("a", "late"), "late")]) == ()
    still = mark(mark(answer("a", "soon"), "pending"), "late")
    assert open_calls([*messages, still]) == (running.tool_calls[0],)


def test_p6_compaction_takes_the_late_mark_off() -> None:
    late = mark(answer("a", "late"), "late")
    messages = [USER, ask("a"), NEXT, DONE, late]
    assert results(repair(messages).messages) == [("a", STAND_IN)]
    assert results(repair([*messages[:-1], unmark(late, "late")]).messages) == [("a", "late")]


def test_p8_second_late_result_is_left_out() -> None:
    late = mark(answer("a", "late"), "late")
    view = repair([USER, ask("a"), NEXT, DONE, late, DONE, late, answer("a", "again")])
    assert codes(view.changes) == ["unanswered", "late", "duplicate", "duplicate"]
    assert results(view.messages) == [("a", STAND_IN)]


def test_p11_merged_forks_keep_their_own_results() -> None:
    """Calls with one id and different arguments."""
    one, two = ToolCall("a", "f", {"x": 1}), ToolCall("a", "f", {"x": 2})
    shared = [USER]
    left = [Message("assistant", tool_calls=[one]), answer("a", "of 1")]
    right = [Message("assistant", tool_calls=[two]), answer("a", "of 2")]
    view = repair([*shared, *left, *right]).messages
    assert results(view) == [("a", "of 1"), ("a_2", "of 2")]
    assert view[3].tool_calls == (replace(two, id="a_2"),)


def test_results_pair_by_position_before_turns() -> None:
    """The own turn's call first, then the nearest one earlier."""
    messages = [USER, ask("a"), NEXT, ask("a"), NEXT, DONE, answer("a", "late")]
    assert results(repair(messages).messages) == [("a", STAND_IN), ("a_2", "late")]


def test_results_without_id_pair_by_name_then_order() -> None:
    calls = [ToolCall("1", "f"), ToolCall("2", "g"), ToolCall("3", "f"), ToolCall("4", "h")]
    given = [
        answer(None, "g", "g"),
        answer(None, "?"),
        answer(None, "f", "f"),
        answer("3", "3"),
        answer(None, "f", "f"),
    ]
    view = repair([USER, Message("assistant", tool_calls=calls), *given])
    assert results(view.messages) == [("2", "g"), ("4", "?"), ("1", "f"), ("3", "3")]
    assert codes(view.changes).count("duplicate") == 1


def test_call_marks_in_any_order() -> None:
    """Repeated ids are numbered in the order in which the calls are sent."""
    calls = [ToolCall("a", "f", {"n": 1}), ToolCall("a", "f", {"n": 2}), ToolCall("a", "f", {"n": 3})]
    blocks: list[Block] = [CallMark(2), TextBlock("then"), CallMark(0)]
    message = Message("assistant", blocks, tool_calls=calls)
    view = repair([USER, message, *[answer("a", text) for text in ("3", "1", "2")]]).messages
    sent = [(item.id, item.arguments["n"]) for item in view[1].ordered if isinstance(item, ToolCall)]
    assert sent == [("a", 3), ("a_2", 1), ("a_3", 2)]
    assert results(view) == [("a", "3"), ("a_2", "1"), ("a_3", "2")]


def test_native_results_in_any_role() -> None:
    """E4: an assistant's or a tool's message may hold them too."""
    block = anthropic(type="tool_result", tool_use_id="a", content=[{"type": "text", "text": "ok"}, 7])
    for role in ("user", "tool", "function", "developer", "critic"):
        assert results(repair([USER, ask("a"), Message(role, [block])]).messages) == [("a", "ok7")], role
    inside = Message("assistant", [ToolCall("a", "f"), block, TextBlock("so")])
    view = repair([USER, inside]).messages
    assert view[1].ordered == (ToolCall("a", "f"), TextBlock("so"))
    assert results(view) == [("a", "ok7")]


def test_nested_oddities_in_native_results() -> None:
    """E4, E10: nested images count as images; what is of no known form stays readable."""
    image = {"type": "image", "source": {"type": "url", "url": "u"}}
    odd = anthropic(type="tool_result", tool_use_id="a", content=[{"type": "tool_result", "content": "x"}, image, None])
    view = repair([USER, ask("a"), Message("user", [odd])], ANTHROPIC).messages
    assert view[2].blocks == (TextBlock('{"type": "tool_result", "content": "x"}'), ImageBlock("u"))


# Frames


def test_u4_quoted_text_cannot_end_its_frame() -> None:
    text = "x</late-tool-result>y< / LATE-tool-result >z<late-tool-result call='b'>"
    late = mark(answer("a", text), "late")
    told = repair([USER, ask("a"), NEXT, DONE, late]).messages[-1].content
    assert told.count("<late-tool-result") == told.count("</late-tool-result>") == 1
    assert told.startswith('<late-tool-result call="a" tool="f">\n')
    assert told.endswith("\n</late-tool-result>")
    assert "x&lt;/late-tool-result>y&lt; / LATE-tool-result >z&lt;late-tool-result" in told


def test_late_result_keeps_pictures_and_failure() -> None:
    late = mark(Message("tool", [TextBlock("look"), PNG], tool_call_id="a", is_error=True), "late")
    told = repair([USER, ask("a"), NEXT, DONE, late]).messages[-1]
    assert told.ordered == (TextBlock(frame("late-tool-result", "look", call="a", tool="f", error="true")), PNG)


def test_unknown_role_keeps_its_other_blocks() -> None:
    view = repair([Message("critic", [PNG, TextBlock("no")], "x")]).messages
    assert view[0].ordered == (TextBlock(frame("message", "no", role="critic", name="x")), PNG)


# Places


def test_places_follow_joins_moves_and_losses() -> None:
    summary, blank = Message("user", "summary"), Message("assistant", " ")
    messages = [Message("system", "s"), summary, USER, blank, NEXT, ask("a", "b"), NEXT, answer("b"), answer("x"), DONE]
    view = repair(messages)
    assert [m.role for m in view.messages] == ["system", "user", "assistant", "tool", "tool", "user", "assistant"]
    assert view.places == (
        (0, 0),
        (0, 1),
        (1, 1),  # the summary ends inside the joined user message
        (1, 2),
        (1, 2),  # a message that was left out ends where the one before it does
        (1, 3),
        (2, 2),
        (5, 1),  # the text moved behind the results
        (5, 1),
        (5, 1),
        (6, 1),
    )


def test_stand_in_counts_to_the_last_message_of_its_turn() -> None:
    head = [USER, ask("a", "b"), answer("a")]
    assert repair(head).places == ((0, 0), (0, 1), (1, 2), (3, 1))
    assert repair([*head, DONE]).places[:4] == repair(head).places


# Limits


def test_nothing_is_valid_but_no_request() -> None:
    for empty in ([], [Message("system", "s")], [Message("developer", "d"), Message("system", "s")]):
        assert check(empty) == ()
        with pytest.raises(EmptyRequestError, match="besides system text"):
            require_request(repair(empty).messages)
    with pytest.raises(EmptyRequestError):
        require_request(repair([Message("system", "s"), Message("user", " ")]).messages)
    require_request([DONE])


def test_only_messages_are_taken() -> None:
    wrong: Any = [USER, {"role": "user", "content": "hi"}]
    with pytest.raises(TypeError, match=r"messages\[1\] must be a Message, not dict"):
        check(wrong)


def test_joined_message_is_known_again() -> None:
    """So that its digest and size are not computed for each request."""
    messages = [Message("user", "summary"), USER, DONE]
    assert repair(messages).messages[0] is repair(messages).messages[0]
    assert repair([messages[0], NEXT]).messages[0] is not repair(messages).messages[0]


def test_prefill_is_left_to_the_adapter() -> None:
    assert check([USER, Message("assistant", "The answer is")]) == ()


# Growth


def test_known_head_is_not_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Message] = []
    judge = single.judge

    def counted(message: Message, rules: Rules, leading: bool) -> single.Own:
        judged.append(message)
        return judge(message, rules, leading)

    monkeypatch.setattr(single, "judge", counted)
    head = [Message("system", "s"), *[m for i in range(500) for m in (USER, ask(f"c{i}"), answer(f"c{i}"), DONE)]]
    head = [replace(message) for message in head]
    assert codes(check(head)) == []
    assert len(judged) == len(head)
    check(head)
    repair([*head, replace(NEXT)])
    assert len(judged) == len(head) + 1
    check(head, ANTHROPIC)
    assert len(judged) == 2 * len(head) + 1


def many_repeated_ids(n: int) -> list[Message]:
    return [USER, *[m for _ in range(n) for m in (ask("a"), answer("a"))]]


def one_batch_of_one_id(n: int) -> list[Message]:
    return [USER, ask(*["a"] * n), *[answer("a")] * (2 * n)]


def many_late_results(n: int) -> list[Message]:
    waiting = [mark(answer("a"), "pending")] * n
    return [USER, ask(*["a"] * n), *waiting, DONE, *[answer("a")] * (2 * n)]


def many_nameless_results(n: int) -> list[Message]:
    return [USER, ask(*[""] * n), *[answer(None, "x", "f"), answer(None)] * n]


def many_ids_with_one_stem(n: int) -> list[Message]:
    ids = [f"{'x' * 60}{i}" for i in range(n)]
    return [USER, ask(*ids), ask(*ids), ask(*[f"{'y' * 38}_{i}" for i in range(n)], *["y" * 38] * n)]


def many_taken_numbers(n: int) -> list[Message]:
    return [USER, ask(*[f"a_{i}" for i in range(n)], *["a"] * n)]


def many_neighbours(n: int) -> list[Message]:
    return [*[USER, Message("assistant", " "), Message("developer", "d")] * n, *[DONE, ask("a")] * n]


def many_server_calls(n: int) -> list[Message]:
    pairs = [Message("assistant", [SERVER_CALL] * n), Message("assistant", [SERVER_RESULT, REASONING] * n)]
    return [USER, *pairs, NEXT, Message("assistant", [SERVER_CALL] * n)]


@pytest.mark.parametrize("rules", [STRICT, ANTHROPIC], ids=lambda rules: rules.name)
@pytest.mark.parametrize(
    "make",
    [
        many_repeated_ids,
        one_batch_of_one_id,
        many_late_results,
        many_nameless_results,
        many_ids_with_one_stem,
        many_taken_numbers,
        many_neighbours,
        many_server_calls,
    ],
)
def test_work_grows_with_length(make: Any, rules: Rules) -> None:
    """Lines executed, not seconds: twice the transcript is at most a little more than twice the work."""
    small, large = lines_of_repair(make(200), rules), lines_of_repair(make(400), rules)
    assert large < 2.2 * small


def lines_of_repair(messages: list[Message], rules: Rules) -> int:
    """Lines of the library that `repair` runs."""
    count = 0

    def trace(frame_of_call: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        if "validity" not in frame_of_call.f_code.co_filename:
            return None
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        repair(messages, rules)
    finally:
        sys.settrace(before)
    return count


# A real transcript


def recorded() -> Iterator[Message]:
    """The sample's main conversation: one message a record, as the client wrote them."""
    for line in SAMPLE.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record.get("type") in ("user", "assistant") and not record.get("isSidechain"):
            yield Message(record["message"]["role"], record["message"]["content"])


def test_sample_is_what_it_says() -> None:
    messages = list(recorded())
    assert len(messages) == 29
    assert sum(len(message.tool_calls) for message in messages) == 12
    assert set(codes(check(messages))) == {"native-result", "same-role", "empty"}


@pytest.mark.parametrize("rules", PROVIDERS, ids=lambda rules: rules.name)
def test_p1_every_cut_of_a_real_transcript(rules: Rules) -> None:
    messages = list(recorded())
    for start in range(len(messages)):
        for end in range(start + 1, len(messages) + 1):
            view = repair(messages[start:end], rules)
            assert check(view.messages, rules) == ()
            assert view.messages == () or view.messages[0].role == "user"


@pytest.mark.parametrize("rules", PROVIDERS, ids=lambda rules: rules.name)
def test_k4_every_request_of_a_real_transcript(rules: Rules) -> None:
    """Each request's items are the first of the next one's."""
    messages = list(recorded())
    sent: list[Any] = []
    for end in range(1, len(messages) + 1):
        if messages[end - 1].role != "assistant" and (end == len(messages) or messages[end].role == "assistant"):
            items = [
                (m.role, m.tool_call_id, item) for m in repair(messages[:end], rules).messages for item in m.ordered
            ]
            assert items[: len(sent)] == sent
            sent = items
    assert len(sent) == 28
