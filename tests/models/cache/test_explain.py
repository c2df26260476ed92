"""`explain`: one pair of requests for every reason and every cause, and what a break costs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.usage import Usage
from agentkit.core.contracts.validity import STAND_IN
from agentkit.models.cache import ADVICE, CAUSE_ADVICE, CAUSES, REASONS, Block, CacheReport, Diagnosis, Prompt, explain
from agentkit.models.cache.diagnostics import PENDING
from agentkit.models.cache.wire import prompt_of
from agentkit.models.usage import read_usage
from tests.models.cache.notation import SOL, SONNET, anthropic, blocks, openai, rules

CLAUDE, GPT = rules(SONNET), rules(SOL)
BASE = anthropic("tools:500 sys:1500* m:200*")
GROWN = anthropic("tools:500 sys:1500* m:200* n:100*")


def test_every_reason_and_cause_has_its_advice() -> None:
    assert list(ADVICE) == list(REASONS)
    assert list(CAUSE_ADVICE) == list(CAUSES)
    assert all("\n" not in line and line[0].islower() for line in (*ADVICE.values(), *CAUSE_ADVICE.values()))


# -- reasons -----------------------------------------------------------------------------------------------------------


def test_none() -> None:
    found = explain(BASE, GROWN, rules=CLAUDE)
    assert (found.reason, found.expected_read, found.actual_read, found.lost_tokens) == ("none", 2200, 2200, 0)
    assert found.lost_usd == 0
    assert explain(None, BASE, rules=CLAUDE).reason == "none"


def test_volatile_text_behind_the_mark_is_no_break() -> None:
    found = explain(anthropic("s:2000* clock1:40"), anthropic("s:2000* clock2:40"), rules=CLAUDE)
    assert (found.reason, found.also) == ("none", ())


def test_unreported() -> None:
    usage = read_usage({"prompt_tokens": 3000, "completion_tokens": 5}, "openai_chat")
    found = explain(BASE, GROWN, rules=CLAUDE, usage=usage)
    assert (found.reason, found.actual_read, found.lost_tokens, found.lost_usd) == ("unreported", None, None, None)


def test_model_changed() -> None:
    found = explain(BASE, replace(GROWN, model="claude-sonnet-4-5"), rules=CLAUDE)
    assert (found.reason, found.expected_read, found.actual_read) == ("model_changed", 2200, 0)
    assert found.detail == "claude-sonnet-4-6 before, claude-sonnet-4-5 now"


def test_scope_changed() -> None:
    assert explain(BASE, replace(GROWN, scope="other"), rules=CLAUDE).reason == "scope_changed"


@pytest.mark.parametrize(("name", "tier"), [("speed", "system"), ("tool_choice", "messages")])
def test_settings_changed(name: str, tier: str) -> None:
    found = explain(BASE, replace(GROWN, settings={name: "x"}), rules=CLAUDE)
    assert (found.reason, found.tier, found.detail) == ("settings_changed", tier, f"{name}: None before, 'x' now")
    assert found.lost_tokens == (2200 if tier == "system" else 200)


def test_tools_changed_comes_first_and_the_rest_is_told_too() -> None:
    other = anthropic("toolx:500 sys:1500* n:200*", settings={"tool_choice": "any"})
    found = explain(BASE, other, rules=CLAUDE)
    assert (found.reason, found.tier, found.index) == ("tools_changed", "tools", 0)
    assert [reason for reason, _ in found.also] == ["settings_changed", "messages_changed"]
    assert (found.lost_tokens, found.lost_usd) == (2200, Decimal("0.00759"))


def test_a_tool_that_comes_in() -> None:
    found = explain(BASE, anthropic("tools:500 toolx:100 sys:1500* m:200*"), rules=CLAUDE)
    assert (found.reason, found.index, found.detail) == ("tools_changed", 1, "1 blocks more")


def test_system_changed() -> None:
    found = explain(BASE, anthropic("tools:500 s:1500* m:200* n:100*"), rules=CLAUDE)
    assert (found.reason, found.tier, found.index) == ("system_changed", "system", 1)


def test_compacted_by_the_version_and_by_a_new_summary() -> None:
    before = anthropic("s:3000* t1:400 t2:400*", version=1)
    after = anthropic("s:3000* sum:300 t3:400*", version=2)
    found = explain(before, after, rules=CLAUDE)
    assert (found.reason, found.index, found.lost_tokens) == ("compacted", 1, 700)
    assert found.cause is None
    summary = replace(
        after, version=None, blocks=(after.blocks[0], replace(after.blocks[1], kind="summary"), after.blocks[2])
    )
    assert explain(replace(before, version=None), summary, rules=CLAUDE).reason == "compacted"
    assert (
        explain(replace(before, version=None), replace(after, version=None), rules=CLAUDE).reason == "messages_changed"
    )


def test_messages_changed() -> None:
    found = explain(anthropic("s:2000* a:500 b:500*"), anthropic("s:2000* x:500 b:500 c:10*"), rules=CLAUDE)
    assert (found.reason, found.index, found.actual_read, found.lost_tokens) == ("messages_changed", 1, 2000, 1000)


def test_o2_implicit_mode_shares_no_head_between_questions() -> None:
    found = explain(openai("d:2000 u1:100"), openai("d:2000 u2:100"), rules=GPT)
    assert (found.reason, found.index) == ("messages_changed", 1)


def test_below_minimum() -> None:
    found = explain(anthropic("s:900*"), anthropic("s:900* a:50*"), rules=CLAUDE)
    assert (found.reason, found.lost_tokens) == ("below_minimum", 0)
    assert found.detail == "900 tokens of at least 1,024"


def test_no_mark() -> None:
    found = explain(anthropic("s:2000"), anthropic("s:2000 a:50"), rules=CLAUDE)
    assert (found.reason, found.lost_tokens) == ("no_mark", 2000)
    assert explain(anthropic("s:2000*"), anthropic("s:2000 a:50"), rules=CLAUDE).reason == "no_mark"
    tail = explain(anthropic("s:2000* a:500 v:10"), anthropic("s:2000* a:500 b:50 v:10"), rules=CLAUDE)
    assert (tail.reason, tail.expected_read, tail.actual_read, tail.lost_tokens) == ("no_mark", 2500, 2000, 500)
    switched = openai("d:1500 u1:200 a1:100 u2:100*", mode="explicit")
    assert explain(openai("d:1500 u1:200"), switched, rules=GPT).reason == "no_mark"


def test_o4_not_a_boundary() -> None:
    longer = (*openai("d:1500").blocks, Block("messages", "uA", 200), Block("messages", "x", 100, ends="user"))
    assert explain(openai("d:1500 uA:200"), Prompt(SOL, longer), rules=GPT).reason == "not_a_boundary"


def test_beyond_lookback() -> None:
    found = explain(blocks(10, marks=(10,)), blocks(30, marks=(30,)), rules=CLAUDE)
    assert (found.reason, found.detail) == ("beyond_lookback", "20 blocks behind the entry, 20 are looked at")
    more = " ".join(f"a{n}:10 u{n}:10" for n in range(1, 22))
    assert explain(openai("d:2000 u0:100"), openai(f"d:2000 u0:100 {more}"), rules=GPT).reason == "beyond_lookback"


def test_expired() -> None:
    found = explain(BASE, GROWN, rules=CLAUDE, previous_at=0, at=300)
    assert (found.reason, found.detail, found.lost_tokens) == ("expired", "300 s after the request before", 2200)
    assert explain(BASE, GROWN, rules=CLAUDE, previous_at=0, at=299).reason == "none"


def test_not_yet_readable() -> None:
    found = explain(BASE, BASE, rules=CLAUDE, previous_at=0, at=1, first_byte=2.5)
    assert (found.reason, found.detail) == ("not_yet_readable", "1.5 s before the answer began")


def test_unexplained() -> None:
    found = explain(BASE, GROWN, rules=CLAUDE, usage=Usage(0, 5, cache_write_tokens=2300))
    assert (found.reason, found.actual_read, found.lost_tokens) == ("unexplained", 0, 2200)
    assert found.lost_usd == Decimal("2200") * (Decimal("3.75") - Decimal("0.30")) / 1_000_000


def test_a_break_with_time_to_spare_is_not_put_down_to_expiry() -> None:
    usage = Usage(0, 5, cache_write_tokens=2300)
    found = explain(BASE, GROWN, rules=CLAUDE, usage=usage, previous_at=0, at=100)
    assert found.reason == "unexplained"


def test_reported_figures_win_over_estimated_sizes() -> None:
    before, now = Usage(10, 5, cache_write_tokens=4400), Usage(10, 5, cache_read_tokens=4400, cache_write_tokens=200)
    found = explain(BASE, GROWN, rules=CLAUDE, usage=now, previous_usage=before)
    assert (found.reason, found.expected_read, found.actual_read) == ("none", 4400, 4400)


def test_without_a_price_the_loss_in_money_is_not_known() -> None:
    nobody = replace(BASE, model="claude-of-nobody")
    found = explain(nobody, replace(GROWN, model="claude-of-nobody", scope="x"), rules=CLAUDE)
    assert (found.reason, found.lost_tokens, found.lost_usd) == ("scope_changed", 2200, None)


def test_the_providers_own_word_stands_beside_ours() -> None:
    found = explain(BASE, GROWN, rules=CLAUDE, diagnosis=Diagnosis("system_changed", 2_000))
    assert (found.reason, found.provider_reason, found.provider_missed) == ("none", "system_changed", 2_000)
    found = explain(None, GROWN, rules=CLAUDE, diagnosis=Diagnosis(PENDING))
    assert (found.provider_reason, found.provider_missed) == ("pending", None)


def test_automatic_caches_allow_a_step() -> None:
    gpt5 = rules("gpt-5.2")
    one = Prompt("gpt-5.2", (Block("system", "s", 2000), Block("messages", "a", 111)))
    two = Prompt("gpt-5.2", (*one.blocks, Block("messages", "b", 100)))
    found = explain(one, two, rules=gpt5)
    assert (found.reason, found.expected_read, found.actual_read) == ("none", 2111, 2048)
    edited = Prompt("gpt-5.2", (Block("system", "x", 2000), *two.blocks[1:]))
    assert explain(one, edited, rules=gpt5).reason == "system_changed"


# -- causes ------------------------------------------------------------------------------------------------------------


def system(text: str) -> Prompt:
    return body(system=text)


def body(**parts: Any) -> Prompt:
    mark = {"cache_control": {"type": "ephemeral"}}
    told = {"system": "Be careful. " * 900, "messages": [{"role": "user", "content": "Mend it."}], **parts}
    return prompt_of({"model": SONNET, **mark, **told}, "anthropic")


def cause(before: Prompt, after: Prompt, **options: Any) -> str | None:
    found = explain(before, after, rules=CLAUDE, **options)
    assert found.reason not in ("none", "unexplained")
    return found.cause


RULES = "Be careful. " * 900


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Today is 2026-11-30.", "Today is 2026-12-01."),
        ("Now: 2026-11-30T09:59:59Z", "Now: 2026-11-30T10:00:00Z"),
        ("It is 9:05 AM.", "It is 10:15 AM."),
        ("Stamp 1796100000.", "Stamp 1796100060."),
        ("Stamp 1796100000000.", "Stamp 1796100060123."),
    ],
)
def test_clock(a: str, b: str) -> None:
    assert cause(system(RULES + a), system(RULES + b), at=1796100100.0) == "clock"


def test_the_detail_shows_whole_words() -> None:
    found = explain(system(RULES + "At 2026-12-01T05:00."), system(RULES + "At 2026-12-01T05:01."), rules=CLAUDE)
    assert found.detail == "'2026-12-01T05:00' became '2026-12-01T05:01'"


def test_a_bare_number_is_no_time_without_a_clock() -> None:
    assert cause(system(RULES + "Stamp 1796100000."), system(RULES + "Stamp 1796100060.")) == "counter"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("run 4f5b9a31-7c1e-4f7a-9f51-0123456789ab", "run 9d1c3f6e-1a2b-4c3d-8e9f-ba9876543210"),
        ("run 01JD8W3Z9QK4T5V6X7Y8Z9A0B1", "run 01JD8W3Z9QK4T5V6X7Y8Z9ZZZZ"),
        ("commit 0123456789abcdef", "commit fedcba9876543210"),
    ],
)
def test_random_id(a: str, b: str) -> None:
    assert cause(system(RULES + a), system(RULES + b)) == "random_id"


def test_counter() -> None:
    assert cause(system(RULES + "3 of 9 steps done"), system(RULES + "12 of 14 steps done")) == "counter"


def test_reordered_tools_and_keys() -> None:
    tools = [{"name": name, "input_schema": {"type": "object", "required": ["a", "b"]}} for name in ("read", "write")]
    assert cause(body(tools=tools), body(tools=tools[::-1])) == "reordered"
    turned = [{"input_schema": tools[0]["input_schema"], "name": "read"}, tools[1]]
    assert cause(body(tools=tools), body(tools=turned)) == "reordered"
    items = [{"name": "read", "input_schema": {"type": "object", "required": ["b", "a"]}}, tools[1]]
    assert cause(body(tools=tools), body(tools=items)) == "reordered"


def test_formatting() -> None:
    assert cause(system(RULES + "a\n\nb"), system(RULES + "a b")) == "formatting"
    call = {"type": "function_call", "call_id": "c", "name": "read"}
    first = {"role": "developer", "content": RULES}

    def sent(arguments: str) -> Prompt:
        items = [first, {"role": "user", "content": "x"}, {**call, "arguments": arguments}]
        items.append({"type": "function_call_output", "call_id": "c", "output": "text"})
        return prompt_of({"model": SOL, "input": items}, "openai_responses")

    loose = sent(json.dumps({"a": 1, "b": 2}, indent=1))
    assert explain(loose, sent('{"a":1,"b":2}'), rules=GPT).cause == "formatting"
    assert explain(loose, sent('{"b":2,"a":1}'), rules=GPT).cause == "reordered"


def turns(*contents: Any) -> Prompt:
    return body(messages=[{"role": ("user", "assistant")[at % 2], "content": each} for at, each in enumerate(contents)])


def test_thinking_dropped() -> None:
    said, thought = {"type": "text", "text": "Done."}, {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    assert cause(turns("a", [thought, said], "b"), turns("a", [said], "b", "c")) == "thinking_dropped"


def result(call: str, text: str) -> list[Mapping[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": call, "content": text}]


def test_repair() -> None:
    call = [{"type": "tool_use", "id": "c1", "name": "read", "input": {}}]
    assert cause(turns("a", call, result("c1", STAND_IN)), turns("a", call, result("c1", "text"))) == "repair"
    other = [{**call[0], "id": "toolu_abc"}]
    assert cause(turns("a", call, result("c1", "x")), turns("a", other, result("toolu_abc", "x"))) == "repair"


def test_truncated() -> None:
    call = [{"type": "tool_use", "id": "c1", "name": "read", "input": {}}]
    cut = "line\n[... 5,000 of 9,000 characters left out ...]\nline"
    assert cause(turns("a", call, result("c1", "line\nx y z")), turns("a", call, result("c1", cut))) == "truncated"


def test_grounding() -> None:
    both = [{"type": "text", "text": RULES}, {"type": "text", "text": "Relevant context:\n- apples"}]
    other = [both[0], {"type": "text", "text": "Relevant context:\n- pears and plums"}]
    assert cause(body(system=both), body(system=other)) == "grounding"


def test_edited() -> None:
    found = explain(system(RULES + "Be brief."), system(RULES + "Be thorough."), rules=CLAUDE)
    assert (found.cause, found.detail) == ("edited", "'brief' became 'thorough'")
    assert found.advice == CAUSE_ADVICE["edited"]


# -- laws --------------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from("abcd")
MARKS = st.sampled_from([None, None, None, "5m"])


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    made = [
        Block(
            tier, draw(NAMES), draw(st.sampled_from([10, 700, 1500])), None, kind=draw(st.sampled_from(["", "summary"]))
        )
        for tier in ("tools", "system", "messages")
        for _ in range(draw(st.integers(0, 3)))
    ]
    for at in draw(st.sets(st.integers(0, max(len(made) - 1, 0)), max_size=4)) if made else ():
        made[at] = replace(made[at], mark="5m")
    model, scope = draw(st.sampled_from([SONNET, SONNET, "claude-opus-5"])), draw(st.sampled_from(["", "", "x"]))
    return Prompt(model, tuple(made), scope, draw(st.sampled_from([{}, {}, {"speed": "fast"}])))


@given(
    prompts(), prompts(), st.sampled_from([0, 100, 400]), st.sampled_from([None, Usage(5, 5, cache_read_tokens=900)])
)
def test_every_pair_has_one_reason_and_the_same_one_twice(a: Prompt, b: Prompt, at: int, usage: Usage | None) -> None:
    def report() -> CacheReport:
        return explain(a, b, rules=CLAUDE, previous_at=0, at=at, usage=usage)

    found = report()
    assert found == report()
    assert found.reason in REASONS
    assert found.lost_tokens is not None
    assert found.lost_tokens >= 0
    assert (found.cause is None) == (found.reason not in ("tools_changed", "system_changed", "messages_changed"))
    if found.reason == "none":
        assert found.lost_tokens == 0


@given(prompts())
def test_a_request_sent_again_loses_nothing(prompt: Prompt) -> None:
    found = explain(prompt, prompt, rules=CLAUDE)
    assert found.reason in ("none", "below_minimum", "no_mark")
