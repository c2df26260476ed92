"""Hypothesis strategies for messages and transcripts, with every oddity that recordings and providers are known for."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

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
)

# Small pools, so that ids repeat, collide once they are mended, and meet those that a repair hands out.
_LONG = "x" * 90
IDS = (
    "", "a", "a", "b", "b", "c", "a_2", "a_3", "a_2_2", "x.y", "x:y", "x_y", "call-1", "call-2", "call-3",
    _LONG, _LONG + "y", _LONG[:40], _LONG[:38] + "_2", "\ud800", "é", "id with blanks\n",
)  # fmt: skip
NAMES = ("", "f", "f", "g", "search", "bad name", "ns.tool:x", "1st", "n" * 130, "\udfff")
ROLES = ("user",) * 6 + ("assistant",) * 7 + ("tool",) * 6 + (
    "system", "developer", "function", "", "model", "User", "\ud83d", "critic",
)  # fmt: skip
TEXTS = (
    "", " ", "\n\t", "\u2003", "hi", "more", "résumé 你好 🙂", "a\x00b\u2028", "half \ud83d pair", "\ud83d\ude00",
    "\udc00",
    "</late-tool-result>", "<system-message role='x'>", "[no output]", "<|endoftext|>",
)  # fmt: skip

_MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
_IMAGE: dict[str, Any] = {"type": "image", "source": {"type": "url", "url": "https://example.test/a.png"}}


def texts() -> st.SearchStrategy[str]:
    """Words, blanks, halves of surrogate pairs, look-alikes of frames."""
    return st.sampled_from(TEXTS) | st.text(max_size=6)


def ids() -> st.SearchStrategy[str]:
    return st.sampled_from(IDS)


def arguments() -> st.SearchStrategy[Any]:
    """What a provider may give as the arguments of a call."""
    return st.sampled_from(
        [
            {}, {"q": "x", "n": [1, 2.5, None]}, '{"q": "x"}', "", "null", "{broken", "[1]", '"text"', '{"n": NaN}',
            '{"q": "\\ud800"}', '{"q": "\\ud83d\\ude00"}', {"k\ud800": "\udfff"}, '{"q": "\ud800"}',
            {"nan": float("nan")}, {"s": {1, 2}}, {"_raw": "x"}, None, 7,
        ]
    )  # fmt: skip


@st.composite
def calls(draw: st.DrawFn) -> ToolCall:
    return ToolCall(draw(ids()), draw(st.sampled_from(NAMES)), draw(arguments()))


@st.composite
def _native_results(draw: st.DrawFn) -> NativeBlock:
    content = draw(
        st.sampled_from(
            [
                None, "", "done", "\ud800", 5, {"odd": 1}, ["text", None, 3], [_IMAGE], [{"type": "text", "text": ""}],
                [{"type": "text", "text": "found", **_MARK}, _IMAGE], [{"type": "tool_result", "content": "nested"}],
                [{"type": "search_result", "title": "t", "content": [{"type": "text", "text": "x", **_MARK}]}],
            ]
        )
    )  # fmt: skip
    payload = {"type": "tool_result", "tool_use_id": draw(ids()), "content": content}
    if draw(st.booleans()):
        payload |= {"is_error": draw(st.sampled_from([True, False, "yes"])), **_MARK}
    return NativeBlock("anthropic", payload)


@st.composite
def _server_blocks(draw: st.DrawFn) -> NativeBlock:
    found = draw(st.sampled_from(["srvtoolu_1", "srvtoolu_1", "srvtoolu_2", "", None, 3]))
    kind = draw(st.sampled_from(["server_tool_use", "server_tool_use", "mcp_tool_use"]))
    result = draw(st.sampled_from(["web_search_tool_result", "web_search_tool_result", "mcp_tool_result"]))
    if draw(st.booleans()):
        return NativeBlock("anthropic", {"type": kind, "id": found, "name": "web_search", "input": dict(_MARK)})
    return NativeBlock("anthropic", {"type": result, "tool_use_id": found, "content": [dict(_MARK)]})


def natives() -> st.SearchStrategy[NativeBlock]:
    """Blocks that only one provider understands, and some that none does."""
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"}
    fixed = [
        NativeBlock("openai", reasoning),
        NativeBlock("openai", reasoning),
        NativeBlock("openai", {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
        NativeBlock(
            "openai", {"type": "web_search_call", "id": "ws_1", "prompt_cache_breakpoint": {"mode": "explicit"}}
        ),
        NativeBlock("openai", {"type": "refusal", "refusal": "no \ud800"}),
        NativeBlock("anthropic", {"type": "thinking", "thinking": "hm", "signature": "s", "extra": 1}),
        NativeBlock("anthropic", {"type": "thinking", "thinking": "hm \ud800", "signature": "s", "extra": 1}),
        NativeBlock("anthropic", {"type": "thinking", "thinking": "hm", "signature": None}),
        NativeBlock(
            "anthropic", {"type": "document", "source": {"type": "content", "content": [dict(_MARK)]}, **_MARK}
        ),
        NativeBlock("gemini", {"executableCode": {"code": "1"}}),
        NativeBlock("unknown", "text\ud800"),
        NativeBlock("\ud800", {"\udfff": ["\ud800", ("x",)], "type": 3}),
        NativeBlock("anthropic", None),
    ]
    return st.sampled_from(fixed) | _server_blocks() | _native_results()


def blocks() -> st.SearchStrategy[Block]:
    """Any block but a CallMark."""
    extra = st.sampled_from([{}, {}, _MARK, {"citations": [{"quote": "\ud800"}]}, {"citations": [], **_MARK}])
    return st.one_of(
        st.builds(TextBlock, texts(), extra),
        st.builds(TextBlock, texts()),
        st.sampled_from(
            [
                ImageBlock(b"png", "image/png"),
                ImageBlock("https://example.test/\ud800", detail="low"),
                ImageBlock(b""),
                DocumentBlock(b"pdf", "application/pdf", "title \udfff"),
                DocumentBlock("file-1"),
                ThinkingBlock("hm", "signature"),
                ThinkingBlock("", "signature"),
                ThinkingBlock("hm \ud800", "signature"),
                ThinkingBlock("hm", "\ud800"),
                ThinkingBlock("hm \ud800"),
                ThinkingBlock("hm", " "),
                RedactedThinkingBlock("data"),
                RedactedThinkingBlock(""),
                RedactedThinkingBlock("\ud800"),
            ]
        ),
        natives(),
    )


@st.composite
def _content(draw: st.DrawFn, number_of_calls: int) -> list[Block]:
    """Blocks in any order, some of the calls placed among them."""
    found: list[Block] = draw(st.lists(blocks(), max_size=4))
    for index in draw(st.permutations(range(number_of_calls))):
        if draw(st.booleans()):
            found.insert(draw(st.integers(0, len(found))), CallMark(index))
    return found


METAS: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {}, {},
    {"agentkit": {"pending": {}}},
    {"agentkit": {"synthetic": {}}},
    {"agentkit": {"late": {}}},
    {"agentkit": {"late": {}, "pending": {}}},
    {"agentkit": {"pinned": {}, "summary": {"covers": 3}}},
    {"agentkit": {"late": True, "pending": "yes"}},
    {"agentkit": "odd"},
    {"anthropic": {"id": "msg_1", "text": "\ud800"}},
)  # fmt: skip


@st.composite
def messages(draw: st.DrawFn, roles: st.SearchStrategy[str] | None = None) -> Message:
    """One message of any kind; mostly plain ones, since odd ones alone never meet."""
    role = draw(st.sampled_from(ROLES) if roles is None else roles)
    has_calls = draw(st.integers(0, 9)) < (6 if role == "assistant" else 1)
    found = draw(st.lists(calls(), min_size=1, max_size=3)) if has_calls else []
    answers = role in ("tool", "function")
    call_id = draw(ids() | st.none()) if answers or draw(st.integers(0, 19)) == 0 else None
    name = draw(st.none() | st.sampled_from(NAMES)) if answers or draw(st.integers(0, 5)) == 0 else None
    content: Any = draw(texts()) if draw(st.integers(0, 2)) else draw(_content(len(found)))
    return Message(
        role,
        content,
        name,
        call_id,
        found,
        is_error=draw(st.integers(0, 5)) == 0,
        meta=draw(st.sampled_from(METAS)),
    )


def transcripts(max_size: int = 12) -> st.SearchStrategy[list[Message]]:
    """Lists of messages in any order: nothing about them need be right."""
    plain = st.sampled_from(
        [
            Message("user", "go on"),
            Message("assistant", "done"),
            Message("assistant", "", tool_calls=[ToolCall("a", "f")]),
            Message("assistant", "look", tool_calls=[ToolCall("a", "f"), ToolCall("b", "g", {"q": 1})]),
            Message("tool", "one", tool_call_id="a"),
            Message("tool", "two", tool_call_id="b"),
            Message("tool", "three", "g"),
        ]
    )
    return st.lists(st.one_of(messages(), plain), max_size=max_size)


@st.composite
def valid_transcripts(draw: st.DrawFn, max_turns: int = 6) -> list[Message]:
    """Transcripts in which nothing is wrong for any provider, native blocks aside."""
    words = st.sampled_from(["hi", "résumé 你好 🙂", "a\x00b", "{}", "</x>"])
    metas: list[dict[str, Any]] = [{}, {}, {"agentkit": {"pinned": {}}}, {"anthropic": {"id": "msg_1"}}]
    marks: list[dict[str, Any]] = [{}, {}, {"agentkit": {"pending": {}}}, {"agentkit": {"synthetic": {}}}]
    given: list[Any] = [{}, '{"q": 1}', {"q": ["x"]}]
    meta = st.sampled_from(metas)
    found = [Message("system", draw(words), name="schema") for _ in range(draw(st.integers(0, 2)))]
    rich: list[Any] = [TextBlock("see"), ImageBlock(b"png", "image/png"), TextBlock("this", {"citations": []})]
    found.append(Message("user", draw(st.sampled_from([rich, "task"])), meta=draw(meta)))
    for turn in range(draw(st.integers(0, max_turns))):
        number = draw(st.integers(0, 3))
        made = [ToolCall(f"call_{turn}_{i}", f"tool-{i}", draw(st.sampled_from(given))) for i in range(number)]
        parts: list[Any] = [draw(words)]
        if draw(st.booleans()):
            parts.insert(0, ThinkingBlock("hm", "signature"))
        at = len(parts) - draw(st.integers(0, 1))
        parts[at:at] = made
        found.append(Message("assistant", parts, meta=draw(meta)))
        for call in draw(st.permutations(made)):
            mark = draw(st.sampled_from(marks))
            failed = draw(st.booleans())
            found.append(Message("tool", draw(words), tool_call_id=call.id, is_error=failed, meta=mark))
        if not made or draw(st.booleans()):
            found.append(Message("user", draw(words), meta=draw(meta)))
    if found[-1].role == "user" and draw(st.booleans()):
        found.append(Message("assistant", draw(words)))
    return found
