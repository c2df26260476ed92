"""Request bodies as prompts: what goes into the key, marks, settings and sizes."""

from __future__ import annotations

import copy
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.models.cache import Prompt, PromptCache
from agentkit.models.cache.wire import BodyWire, prompt_of
from tests.models.cache.notation import rules

MARK = {"type": "ephemeral"}


def claude(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": "claude-sonnet-4-6",
        "tools": [{"name": "read", "input_schema": {"type": "object"}}],
        "system": [{"type": "text", "text": "Be careful.", "cache_control": MARK}],
        "messages": [
            {"role": "user", "content": "Mend it."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                    {"type": "tool_use", "id": "c1", "name": "read", "input": {"a": 1, "b": 2}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "text"}]},
        ],
    }
    return {**body, **changes}


def responses(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": "gpt-5.6-sol",
        "input": [
            {"role": "developer", "content": [{"type": "input_text", "text": "Be careful."}]},
            {"role": "user", "content": "Mend it."},
            {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "abc"},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "text"},
        ],
    }
    return {**body, **changes}


def digests(prompt: Prompt) -> list[str]:
    return [block.digest for block in prompt.blocks]


def test_anthropic_blocks_in_the_order_of_the_key() -> None:
    found = prompt_of(claude(), "anthropic")
    assert [(block.tier, block.kind, block.mark) for block in found.blocks] == [
        ("tools", "tool", None),
        ("system", "text", "5m"),
        ("messages", "text", None),
        ("messages", "thinking", None),
        ("messages", "call", None),
        ("messages", "result", None),
    ]
    assert found.model == "claude-sonnet-4-6"
    assert all(block.tokens > 0 for block in found.blocks)


def test_a_mark_changes_no_digest() -> None:
    marked = copy.deepcopy(claude())
    marked["messages"][0]["content"] = [{"type": "text", "text": "Mend it.", "cache_control": {**MARK, "ttl": "1h"}}]
    plain, found = prompt_of(claude(), "anthropic"), prompt_of(marked, "anthropic")
    assert digests(plain) == digests(found)
    assert found.blocks[2].mark == "1h"


def test_a_mark_inside_a_result_is_the_mark_of_the_result() -> None:
    marked = copy.deepcopy(claude())
    inner = [{"type": "text", "text": "text"}]
    marked["messages"][2]["content"][0]["content"] = inner
    plain = prompt_of(marked, "anthropic")
    inner[0]["cache_control"] = MARK  # type: ignore[assignment]
    assert digests(prompt_of(marked, "anthropic")) == digests(plain)
    assert prompt_of(marked, "anthropic").blocks[-1].mark == "5m"


def test_the_order_of_keys_in_a_call_is_part_of_the_key() -> None:
    other = copy.deepcopy(claude())
    other["messages"][1]["content"][1]["input"] = {"b": 2, "a": 1}
    assert digests(prompt_of(other, "anthropic"))[:4] == digests(prompt_of(claude(), "anthropic"))[:4]
    assert digests(prompt_of(other, "anthropic"))[4] != digests(prompt_of(claude(), "anthropic"))[4]


def test_automatic_mode_marks_the_last_block_that_can_take_it() -> None:
    body = claude(cache_control={**MARK, "ttl": "1h"}, system="Be careful.")
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    body["messages"] = [body["messages"][0], {"role": "assistant", "content": [thought]}]
    assert [block.mark for block in prompt_of(body, "anthropic").blocks] == [None, None, "1h", None]
    body["messages"] = [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": MARK}]}]
    with pytest.raises(ValueError, match="block 2 has a mark of 5m"):
        prompt_of(body, "anthropic")


@pytest.mark.parametrize(
    ("part", "what"),
    [
        ({"type": "thinking", "thinking": "x", "signature": "s"}, "thinking"),
        ({"type": "text", "text": ""}, "empty text"),
    ],
)
def test_what_takes_no_mark(part: dict[str, Any], what: str) -> None:
    body = claude(messages=[{"role": "assistant", "content": [{**part, "cache_control": MARK}]}])
    with pytest.raises(ValueError, match=f"a mark stands on {what}"):
        prompt_of(body, "anthropic")


def test_tools_that_are_found_by_search_stay_out_of_the_key() -> None:
    body = claude(tools=[*claude()["tools"], {"name": "late", "defer_loading": True}])
    assert digests(prompt_of(body, "anthropic")) == digests(prompt_of(claude(), "anthropic"))


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({}, {}),
        ({"tool_choice": {"type": "auto"}, "output_config": {"effort": "high"}, "speed": "standard"}, {}),
        ({"thinking": {"type": "disabled"}}, {}),
        (
            {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
            {"tool_choice": {"type": "any"}, "disable_parallel_tool_use": True},
        ),
        ({"output_config": {"effort": "low"}, "speed": "fast"}, {"effort": "low", "speed": "fast"}),
        ({"thinking": {"type": "adaptive"}}, {"thinking": {"type": "adaptive"}}),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, {"web_search": True}),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]}]},
            {"images": True},
        ),
    ],
)
def test_anthropic_settings(changes: dict[str, Any], settings: dict[str, Any]) -> None:
    assert prompt_of(claude(**changes), "anthropic").settings == settings


def test_responses_say_where_each_message_ends() -> None:
    found = prompt_of(responses(), "openai_responses")
    assert [block.ends for block in found.blocks] == ["developer", "user", "assistant", "assistant", "tool"]
    assert [block.tier for block in found.blocks] == ["system", *["messages"] * 4]
    with_text = prompt_of(responses(input="Mend it.", instructions="Be careful."), "openai_responses")
    assert [(block.tier, block.ends) for block in with_text.blocks] == [("system", None), ("messages", "user")]


def test_openai_marks_inherit_the_lifetime_of_the_request() -> None:
    body = responses(prompt_cache_options={"mode": "explicit", "ttl": "12h"}, prompt_cache_key="k")
    part = body["input"][0]["content"][0]
    part["prompt_cache_breakpoint"] = {"mode": "explicit"}
    found = prompt_of(body, "openai_responses", scope="org")
    assert (found.blocks[0].mark, found.mode, found.scope) == ("12h", "explicit", "org/k")
    part["prompt_cache_breakpoint"] = {"mode": "explicit", "ttl": "30m"}
    assert prompt_of(body, "openai_responses").blocks[0].mark == "30m"
    assert digests(prompt_of(responses(), "openai_responses")) == digests(found)


def test_chat_messages() -> None:
    body = {
        "model": "gpt-5.6-sol",
        "tools": [{"type": "function", "function": {"name": "read"}}],
        "messages": [
            {"role": "system", "content": "Be careful."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "text"},
            {"role": "assistant", "content": ""},
        ],
        "response_format": {"type": "json_object"},
        "reasoning_effort": "low",
        "parallel_tool_calls": False,
        "service_tier": "flex",
        "verbosity": "low",
    }
    found = prompt_of(body, "openai_chat")
    assert [block.ends for block in found.blocks] == [None, "system", None, "user", "assistant", "tool", "assistant"]
    assert found.settings == {
        "text_format": {"type": "json_object"},
        "reasoning_effort": "low",
        "parallel_tool_calls": False,
        "service_tier": "flex",
        "verbosity": "low",
    }
    split = {**body, "messages": [body["messages"][0], *[{"role": "user", "content": c} for c in "ab"]]}  # type: ignore[index]
    assert digests(prompt_of(split, "openai_chat"))[:3] == digests(found)[:3]
    assert digests(prompt_of(split, "openai_chat"))[3] != digests(found)[3]


def test_gemini_contents() -> None:
    body = {
        "systemInstruction": {"parts": [{"text": "Be careful."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "a"}, {"inlineData": {"mimeType": "image/png", "data": "A" * 9000}}]},
            {"role": "model", "parts": [{"text": "b"}]},
        ],
    }
    found = prompt_of(body, "gemini")
    assert [(block.tier, block.ends) for block in found.blocks] == [
        ("system", None),
        ("messages", None),
        ("messages", "user"),
        ("messages", "assistant"),
    ]
    assert found.blocks[2].tokens == 1604


def test_pictures_and_encoded_data_are_not_counted_by_length() -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": "A" * 90_000}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [picture]}
    body = claude(messages=[{"role": "user", "content": [picture, result]}])
    assert all(block.tokens < 1_700 for block in prompt_of(body, "anthropic").blocks)


def test_counts_are_taken_from_the_caller_and_handed_back() -> None:
    counts: dict[str, int] = {}
    found = prompt_of(claude(), "anthropic", counter=len, token_counts=counts)
    assert counts == {block.digest: block.tokens for block in found.blocks}
    counts[found.blocks[1].digest] = 77
    assert prompt_of(claude(), "anthropic", counter=len, token_counts=counts).blocks[1].tokens == 77


def test_summaries_and_grounding_are_told_by_how_they_begin() -> None:
    texts = ('<context-summary version="2">\nx\n</context-summary>', "Relevant context:\n- x", "Else")
    body = claude(messages=[{"role": "user", "content": [{"type": "text", "text": text} for text in texts]}])
    assert [block.kind for block in prompt_of(body, "anthropic").blocks[-3:]] == ["summary", "grounding", "text"]


def test_unknown_wire() -> None:
    with pytest.raises(ValueError, match="wire must be one of anthropic, openai_chat"):
        prompt_of({}, "smoke")  # type: ignore[arg-type]


@pytest.mark.parametrize(("wire", "body"), [("anthropic", claude()), ("openai_responses", responses())])
def test_a_memo_changes_nothing(wire: BodyWire, body: dict[str, Any]) -> None:
    memo: dict[Any, Any] = {}
    plain = prompt_of(body, wire)
    for _ in range(2):
        assert prompt_of(copy.deepcopy(body), wire, memo=memo) == plain
    key = "messages" if wire == "anthropic" else "input"
    body[key][0] = {"role": "user", "content": [{"type": "text", "text": "other", "cache_control": MARK}]}
    assert prompt_of(body, wire, memo=memo) == prompt_of(body, wire)


def test_a_long_conversation_is_not_digested_again() -> None:
    counted: list[int] = []

    def counter(text: str) -> int:
        counted.append(len(text))
        return len(text) // 4

    cache = PromptCache(rules("claude-sonnet-4-6"))
    memo: dict[Any, Any] = {}
    counts: dict[str, int] = {}
    body = claude(messages=[])
    began = process_time()
    for turn in range(300):
        body["messages"].append({"role": ("user", "assistant")[turn % 2], "content": f"{turn} " * 400})
        sent = {**body, "cache_control": MARK}
        prompt = prompt_of(sent, "anthropic", counter=counter, token_counts=counts, memo=memo)
        bill = cache.send(prompt, at=turn)
        assert bill.read == (prompt.sums[-2] if turn > 5 else bill.read)
    assert len(counted) == 302
    assert process_time() - began < 10


TEXTS = st.text(max_size=20)
PARTS = st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS.filter(bool)})
CONTENTS = st.one_of(TEXTS.filter(bool), st.lists(PARTS, min_size=1, max_size=3))
MESSAGES = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": CONTENTS})


@pytest.mark.parametrize("wire", ["anthropic", "openai_chat", "openai_responses"])
@given(st.lists(MESSAGES, min_size=1, max_size=6), st.integers(0, 5))
def test_what_is_appended_leaves_the_head_of_the_key(wire: BodyWire, sent: list[dict[str, Any]], cut: int) -> None:
    """Of every wire, with marks and a memo or without."""
    field = "input" if wire == "openai_responses" else "messages"
    memo: dict[Any, Any] = {}
    head = prompt_of({"model": "m", field: sent[:cut]}, wire, memo=memo)
    whole = prompt_of({"model": "m", field: sent}, wire, memo=memo)
    assert digests(whole)[: len(head.blocks)] == digests(head)
    assert prompt_of({"model": "m", field: sent}, wire) == whole
    name = "cache_control" if wire == "anthropic" else "prompt_cache_breakpoint"
    last = sent[-1]["content"]
    parts: list[Any] = [{"type": "text", "text": last}] if isinstance(last, str) else copy.deepcopy(last)
    parts[-1][name] = {"type": "ephemeral"} if wire == "anthropic" else {"mode": "explicit"}
    marked = prompt_of({"model": "m", field: [*sent[:-1], {**sent[-1], "content": parts}]}, wire, memo=memo)
    assert digests(marked) == digests(whole)
    assert marked.blocks[-1].mark == ("5m" if wire == "anthropic" else "30m")
