"""What providers say about their own cache, as caching.md section 3 lists it."""

from __future__ import annotations

from typing import Any

import anthropic as sdk
import httpx2
import pytest

from agentkit.core.contracts.types import Message
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM
from agentkit.models.cache import REASONS, Diagnosis, read_diagnosis
from agentkit.models.cache.diagnostics import MEANINGS
from tests.models.adapters.served import Wire, asking


def anthropic(reason: Any) -> dict[str, Any]:
    return {"diagnostics": {"cache_miss_reason": reason}}


def openai(**said: Any) -> dict[str, Any]:
    return {"prompt_cache_diagnostics": said}


pytestmark = pytest.mark.anyio

CASES: dict[str, tuple[Any, Diagnosis | None]] = {
    "anthropic, a change": (
        anthropic({"type": "tools_changed", "cache_missed_input_tokens": 4_120}),
        Diagnosis("tools_changed", 4_120),
    ),
    "anthropic, still comparing": (anthropic(None), Diagnosis("pending")),
    "anthropic, no word": (anthropic({"type": "unavailable"}), Diagnosis("unavailable")),
    "anthropic, nothing different": ({"diagnostics": None}, None),
    "openai, a hit": (openai(type="cache_hit"), Diagnosis("cache_hit")),
    "openai, a miss": (
        openai(
            type="cache_miss", reason="context_compacted", comparison_reusable_tokens=900, cache_missed_tokens=1_200
        ),
        Diagnosis("context_compacted", 1_200, 900),
    ),
    "openai, another response": (
        openai(type="comparison_response_not_found"),
        Diagnosis("comparison_response_not_found"),
    ),
    "in the meta of an answer": ({"anthropic": anthropic(None), "dropped": ("top_p",)}, Diagnosis("pending")),
    "odd figures": (anthropic({"type": "x", "cache_missed_input_tokens": -1}), Diagnosis("x")),
    "odd forms": ({"diagnostics": [1], "prompt_cache_diagnostics": {"type": 3}}, None),
    "no mapping": ("cache_hit", None),
}


@pytest.mark.parametrize(("said", "found"), CASES.values(), ids=CASES)
def test_a_diagnosis_is_read_wherever_it_stands(said: Any, found: Diagnosis | None) -> None:
    assert read_diagnosis(said) == found


def test_every_word_stands_for_reasons_of_ours() -> None:
    assert {reason for reasons in MEANINGS.values() for reason in reasons} <= set(REASONS)
    assert Diagnosis("system_changed").reasons == ("system_changed",)
    assert Diagnosis("a word of next year").reasons == ()


async def test_anthropic_is_asked_and_its_word_kept() -> None:
    usage = {"input_tokens": 1, "output_tokens": 1}
    text = [{"type": "text", "text": "Hi."}]
    told = anthropic({"type": "messages_changed", "cache_missed_input_tokens": 12})
    wire = Wire({"id": "m1", "role": "assistant", "content": text, "stop_reason": "end_turn", "usage": usage, **told})
    http = httpx2.AsyncClient(transport=wire.transport)
    llm = AnthropicLLM(sdk.AsyncAnthropic(api_key="k", base_url="http://127.0.0.1:9", http_client=http))
    asked = {"previous_message_id": None}
    answer = await llm.chat(asking(Message("user", "hi"), model="claude-sonnet-5", options={"diagnostics": asked}))
    assert wire.bodies[0]["diagnostics"] == asked
    assert read_diagnosis(answer.meta) == Diagnosis("messages_changed", 12)


async def test_openai_is_asked_beside_the_plan_and_its_word_kept() -> None:
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}]
    wire = Wire({"id": "r2", "status": "completed", "output": output, **openai(type="cache_hit")})
    options = {"prompt_cache_options": {"comparison_response_id": "r1"}}
    answer = await OpenAIResponsesLLM(wire.openai()).chat(
        asking(Message("user", "hi"), model="gpt-5.6-sol", options=options)
    )
    assert wire.bodies[0]["prompt_cache_options"] == {"mode": "explicit", "comparison_response_id": "r1"}
    assert read_diagnosis(answer.meta) == Diagnosis("cache_hit")
