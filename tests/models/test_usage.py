"""Reading reported usage: the law of each wire over random figures, one test a trap, and input that is no usage."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkit.core.contracts.usage import Usage
from agentkit.models.usage import read_usage
from agentkit.models.usage_wires import WIRES

COUNT = st.integers(min_value=0, max_value=2_000_000)


def anthropic(fresh: int, read: int, write: int, long: int, out: int, think: int) -> dict[str, Any]:
    split = {"ephemeral_1h_input_tokens": long, "ephemeral_5m_input_tokens": write - long}
    return {
        "input_tokens": fresh,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
        "cache_creation": split,
        "output_tokens": out,
        "output_tokens_details": {"thinking_tokens": think},
    }


def openai_chat(fresh: int, read: int, write: int, long: int, out: int, think: int) -> dict[str, Any]:
    split = {"ttl_12h_tokens": long, "ttl_30m_tokens": write - long}
    details = {"cached_tokens": read, "cache_write_tokens": write, "cache_write_tokens_details": split}
    return {
        "prompt_tokens": fresh + read + write,
        "prompt_tokens_details": details,
        "completion_tokens": out,
        "completion_tokens_details": {"reasoning_tokens": think},
    }


def openai_responses(fresh: int, read: int, write: int, long: int, out: int, think: int) -> dict[str, Any]:
    chat = openai_chat(fresh, read, write, long, out, think)
    return {
        "input_tokens": chat["prompt_tokens"],
        "input_tokens_details": chat["prompt_tokens_details"],
        "output_tokens": out,
        "output_tokens_details": {"reasoning_tokens": think},
    }


def converse(fresh: int, read: int, write: int, long: int, out: int, think: int) -> dict[str, Any]:
    details = [{"ttl": "1h", "inputTokens": long}, {"ttl": "5m", "inputTokens": write - long}]
    return {
        "inputTokens": fresh,
        "cacheReadInputTokens": read,
        "cacheWriteInputTokens": write,
        "cacheDetails": details,
        "outputTokens": out,
    }


def gemini(fresh: int, read: int, write: int, long: int, out: int, think: int) -> dict[str, Any]:
    tools = fresh // 3
    return {
        "promptTokenCount": fresh + read - tools,
        "toolUsePromptTokenCount": tools,
        "cachedContentTokenCount": read,
        "candidatesTokenCount": out - think,
        "thoughtsTokenCount": think,
    }


def interactions(fresh: int, read: int, write: int, long: int, out: int, think: int) -> dict[str, Any]:
    return {
        "total_input_tokens": fresh + read,
        "total_cached_tokens": read,
        "total_output_tokens": out - think,
        "total_thought_tokens": think,
    }


def deepseek(fresh: int, read: int, write: int, long: int, out: int, think: int) -> dict[str, Any]:
    return {
        "prompt_tokens": fresh + read,
        "prompt_cache_miss_tokens": fresh,
        "prompt_cache_hit_tokens": read,
        "completion_tokens": out,
        "completion_tokens_details": {"reasoning_tokens": think},
    }


def xai(fresh: int, read: int, write: int, long: int, out: int, think: int) -> dict[str, Any]:
    return {
        "prompt_tokens": fresh + read,
        "prompt_tokens_details": {"cached_tokens": read},
        "completion_tokens": out - think,
        "completion_tokens_details": {"reasoning_tokens": think},
    }


def litellm(fresh: int, read: int, write: int, long: int, out: int, think: int) -> dict[str, Any]:
    return {
        "prompt_tokens": fresh + read + write,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write,
        "prompt_tokens_details": {"cached_tokens": read},
        "completion_tokens": out,
        "completion_tokens_details": {"reasoning_tokens": think},
    }


def langchain(fresh: int, read: int, write: int, long: int, out: int, think: int) -> dict[str, Any]:
    return {
        "input_tokens": fresh + read + write,
        "input_token_details": {"cache_read": read, "cache_creation": write},
        "output_tokens": out,
        "output_token_details": {"reasoning": think},
    }


def codex(fresh: int, read: int, write: int, long: int, out: int, think: int) -> dict[str, Any]:
    return {
        "input_tokens": fresh + read,
        "cached_input_tokens": read,
        "output_tokens": out,
        "reasoning_output_tokens": think,
    }


def llama_chat(fresh: int, read: int, write: int, long: int, out: int, think: int) -> dict[str, Any]:
    details = {"cached_tokens": read}
    return {"prompt_tokens": fresh + read, "prompt_tokens_details": details, "completion_tokens": out}


def llama_anthropic(fresh: int, read: int, write: int, long: int, out: int, think: int) -> dict[str, Any]:
    return {"input_tokens": fresh, "cache_read_input_tokens": read, "output_tokens": out}


def llama_timings(fresh: int, read: int, write: int, long: int, out: int, think: int) -> dict[str, Any]:
    return {"timings": {"prompt_n": fresh, "cache_n": read, "predicted_n": out}}


# wire, reported figures, and which of (write, long, reasoning) the wire tells
REPORTS: list[tuple[str, Any, tuple[bool, bool, bool]]] = [
    ("anthropic", anthropic, (True, True, True)),
    ("openai_chat", openai_chat, (True, True, True)),
    ("openai_responses", openai_responses, (True, True, True)),
    ("openrouter", openai_chat, (True, True, True)),
    ("converse", converse, (True, True, False)),
    (
        "converse_stream_openai",
        lambda f, r, w, *rest: converse(f + r + w, r, w, *rest),
        (True, True, False),
    ),
    ("gemini", gemini, (False, False, True)),
    ("gemini_interactions", interactions, (False, False, True)),
    ("deepseek", deepseek, (False, False, True)),
    ("xai", xai, (False, False, True)),
    ("litellm", litellm, (True, False, True)),
    ("langchain", langchain, (True, False, True)),
    ("codex", codex, (False, False, True)),
    ("llama.cpp", llama_chat, (False, False, False)),
    ("llama.cpp", llama_anthropic, (False, False, False)),
    ("llama.cpp", llama_timings, (False, False, False)),
]


@pytest.mark.parametrize(("wire", "report", "tells"), REPORTS)
@given(fresh=COUNT, read=COUNT, write=COUNT, part=st.integers(0, 100), out=COUNT, thought=st.integers(0, 100))
def test_law_of_each_wire(
    wire: str,
    report: Any,
    tells: tuple[bool, bool, bool],
    fresh: int,
    read: int,
    write: int,
    part: int,
    out: int,
    thought: int,
) -> None:
    """I4: fresh + read + write is the provider's own total input, and reasoning is in the output exactly once."""
    written = write if tells[0] else 0
    long = write * part // 100
    think = out * thought // 100
    reading = read_usage(report(fresh, read, write, long, out, think), wire)
    usage = reading.usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (fresh, read, written)
    assert usage.prompt_tokens == fresh + read + written
    assert usage.output_tokens == out
    assert usage.cache_write_long_tokens == (long if tells[1] else 0)
    assert usage.reasoning_tokens == (think if tells[2] else 0)
    assert reading.cache_known
    assert not [flag for flag in reading.flags if flag.startswith("impossible:")]
    assert reading.anchor == (usage if usage.prompt_tokens else None)


def test_every_wire_has_a_law() -> None:
    assert {wire for wire, _, _ in REPORTS} == {*WIRES, "llama.cpp"}


def test_same_name_differs_by_wire() -> None:
    """`input_tokens` excludes cached tokens at Anthropic and includes them in OpenAI's responses."""
    theirs = read_usage({"input_tokens": 100, "cache_read_input_tokens": 900, "output_tokens": 1}, "anthropic")
    ours = read_usage(
        {"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 900}, "output_tokens": 1}, "openai_responses"
    )
    assert theirs.usage == ours.usage == Usage(100, 1, cache_read_tokens=900)


@pytest.mark.parametrize("details", [{}, {"prompt_tokens_details": None}, {"prompt_tokens_details": {}}])
def test_missing_details_are_unknown(details: dict[str, Any]) -> None:
    reading = read_usage({"prompt_tokens": 10, "completion_tokens": 2, **details}, "openai_chat")
    assert reading.usage == Usage(10, 2)
    assert not reading.cache_known
    known = read_usage({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}}, "openai_chat")
    assert known.cache_known


def test_stream_figures_replace_each_other() -> None:
    start = {
        "type": "message_start",
        "message": {"usage": {"input_tokens": 7, "cache_read_input_tokens": 90, "output_tokens": 1}},
    }
    delta = {"type": "message_delta", "usage": {"input_tokens": 7, "output_tokens": 40}}
    later = {"type": "message_delta", "usage": {"output_tokens": 55}}
    text = {"type": "content_block_delta", "delta": {"text": "x"}}
    reading = read_usage([start, text, delta, later], "anthropic")
    assert reading.usage == Usage(7, 55, cache_read_tokens=90)


def test_stream_of_llama_has_output_only() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 7, "cache_read_input_tokens": 90}}}
    reading = read_usage([start, {"type": "message_delta", "usage": {"output_tokens": 5}}], "llama.cpp")
    assert reading.usage == Usage(7, 5, cache_read_tokens=90)
    alone = read_usage({"type": "message_delta", "usage": {"output_tokens": 5}}, "llama.cpp")
    assert alone.usage == Usage(0, 5)
    assert alone.anchor is None


def test_stream_of_openai_ends_with_usage() -> None:
    chunks: list[dict[str, Any]] = [
        {"choices": [{"delta": {"content": "a"}}], "usage": None},
        {
            "choices": [],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
        },
    ]
    assert read_usage(chunks, "openai_chat").usage == Usage(5, 3, cache_read_tokens=4)
    assert read_usage(chunks[:1], "openai_chat").flags == ("absent",)


def test_iterations_bill_compaction_and_anchor_on_last() -> None:
    first = {"type": "message", "input_tokens": 11_000, "output_tokens": 400}
    last = {"type": "message", "input_tokens": 12_000, "output_tokens": 600}
    compaction = {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500}
    advisor = {"type": "advisor_message", "model": "claude-opus-5", "input_tokens": 50, "output_tokens": 9}
    raw = {"input_tokens": 23_000, "output_tokens": 1_000, "iterations": [compaction, first, advisor, last]}
    reading = read_usage(raw, "anthropic")
    assert reading.usage == Usage(203_000, 4_500)
    assert reading.anchor == Usage(12_000, 600)
    assert reading.other_models == (("claude-opus-5", Usage(50, 9)),)


def test_bedrock_stream_is_inclusive() -> None:
    raw = {"inputTokens": 1000, "cacheReadInputTokens": 900, "cacheWriteInputTokens": 0, "outputTokens": 5}
    assert read_usage(raw, "converse_stream_openai").usage == Usage(100, 5, cache_read_tokens=900)
    assert read_usage(raw, "converse").usage == Usage(1000, 5, cache_read_tokens=900)


@pytest.mark.parametrize(
    ("wire", "raw"),
    [
        ("anthropic", {"input_tokens": 1, "cache_creation_input_tokens": 50, "output_tokens": 1}),
        (
            "openai_chat",
            {"prompt_tokens": 51, "prompt_tokens_details": {"cache_write_tokens": 50}, "completion_tokens": 1},
        ),
        ("converse", {"inputTokens": 1, "cacheWriteInputTokens": 50, "outputTokens": 1}),
    ],
)
def test_writes_without_split_are_short(wire: str, raw: dict[str, Any]) -> None:
    reading = read_usage(raw, wire)
    assert reading.usage == Usage(1, 1, cache_write_tokens=50)
    assert "ttl_unknown" in reading.flags


def test_writes_are_split_by_ttl() -> None:
    split = {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 40}
    reading = read_usage({"input_tokens": 1, "cache_creation": split, "output_tokens": 1}, "anthropic")
    assert reading.usage == Usage(1, 1, cache_write_tokens=50, cache_write_long_tokens=40)
    assert reading.flags == ()
    more = read_usage({"cache_creation_input_tokens": 30, "cache_creation": split}, "anthropic")
    assert more.usage.cache_write_long_tokens == 0
    assert "impossible:cache_creation.ephemeral_1h_input_tokens" in more.flags


def test_reasoning_outside_is_added_once() -> None:
    raw = {"promptTokenCount": 5, "candidatesTokenCount": 10, "thoughtsTokenCount": 90}
    assert read_usage(raw, "gemini").usage == Usage(5, 100, reasoning_tokens=90)
    inside = {"prompt_tokens": 5, "completion_tokens": 100, "completion_tokens_details": {"reasoning_tokens": 90}}
    assert read_usage(inside, "openai_chat").usage == Usage(5, 100, reasoning_tokens=90)
    assert read_usage(inside, "xai").usage == Usage(5, 190, reasoning_tokens=90)


def test_unsettled_fields_are_named() -> None:
    raw = {"total_input_tokens": 5, "total_tool_use_tokens": 2, "total_output_tokens": 3, "total_thought_tokens": 0}
    reading = read_usage(raw, "gemini_interactions")
    assert reading.usage == Usage(7, 3)
    assert reading.flags == ("assumed:total_tool_use_tokens",)


def test_openrouter_reports_cost() -> None:
    raw = {"prompt_tokens": 5, "completion_tokens": 1, "cost": 0.00125, "cache_discount": -0.0001}
    reading = read_usage(raw, "openrouter")
    assert reading.usage == Usage(5, 1, 0.00125)
    assert reading.raw["cache_discount"] == -0.0001
    assert "impossible:cost" in read_usage({**raw, "cost": "much"}, "openrouter").flags


def test_server_tool_fees_stay_in_raw() -> None:
    raw = {"input_tokens": 5, "output_tokens": 1, "server_tool_use": {"web_search_requests": 3}}
    reading = read_usage(raw, "anthropic")
    assert reading.usage == Usage(5, 1)
    assert reading.raw["server_tool_use"] == {"web_search_requests": 3}


def test_what_sets_the_price_is_read() -> None:
    raw = {"input_tokens": 1, "output_tokens": 1, "service_tier": "batch", "speed": "fast", "inference_geo": "us"}
    reading = read_usage(raw, "anthropic")
    assert (reading.tier, reading.speed, reading.region) == ("batch", "fast", "us")
    outer = read_usage({"service_tier": "flex", "usage": {"prompt_tokens": 1, "completion_tokens": 1}}, "openai_chat")
    assert outer.tier == "flex"


@pytest.mark.parametrize("value", [-1, 1.5, float("nan"), float("inf"), True, "12", [], {}])
def test_impossible_figures_count_nothing(value: object) -> None:
    reading = read_usage({"input_tokens": value, "cache_read_input_tokens": 10, "output_tokens": 2}, "anthropic")
    assert reading.usage == Usage(0, 2, cache_read_tokens=10)
    assert reading.flags == ("impossible:input_tokens",)
    assert reading.is_doubtful
    assert reading.anchor is None
    kept = reading.raw["input_tokens"]
    assert kept == value or kept != kept


def test_cached_above_total_is_doubtful() -> None:
    reading = read_usage(
        {"prompt_tokens": 6, "prompt_tokens_details": {"cached_tokens": 100}, "completion_tokens": 1}, "openai_chat"
    )
    assert reading.usage == Usage(0, 1, cache_read_tokens=100)
    assert reading.flags == ("impossible:prompt_tokens",)


def test_whole_floats_are_counts() -> None:
    assert read_usage({"input_tokens": 12.0, "output_tokens": 3.0}, "anthropic").usage == Usage(12, 3)


@pytest.mark.parametrize("raw", [None, "", "text", 3, [], {}, b"x", {"usage": None}, [None, 4]])
def test_no_figures_are_absent(raw: object) -> None:
    reading = read_usage(raw, "openai_chat")
    assert (reading.usage, reading.flags, reading.anchor) == (Usage(), ("absent",), None)


def test_unknown_wire_counts_nothing() -> None:
    reading = read_usage({"prompt_tokens": 5}, "carrier-pigeon")
    assert (reading.usage, reading.flags) == (Usage(), ("unknown_wire",))
    assert reading.raw == {"prompt_tokens": 5}


KEYS = sorted(
    {
        key
        for wire in WIRES.values()
        for paths in (wire.input, wire.output, wire.read, wire.write)
        for path in paths
        for key in path
    }
    | {"usage", "message", "type", "iterations", "timings", "cache_n", "cacheDetails", "cache_creation"}
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**30) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=20,
)


@given(raw=JSON, wire=st.sampled_from([*WIRES, "llama.cpp", "?"]))
def test_reading_never_raises(raw: Any, wire: str) -> None:
    """G1."""
    reading = read_usage(raw, wire)
    assert reading.usage.reasoning_tokens <= reading.usage.output_tokens
    assert reading.usage.cache_write_long_tokens <= reading.usage.cache_write_tokens


def test_cycles_in_raw_do_not_raise() -> None:
    cycle: dict[str, Any] = {"input_tokens": 1}
    cycle["self"] = cycle
    assert read_usage(cycle, "anthropic").usage.input_tokens == 1
