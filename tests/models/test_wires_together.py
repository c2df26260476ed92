"""A transcript goes from one provider to another: what one notes beside a call or a text is not shown to the next."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agentkit.core.contracts.requests import ChatRequest
from agentkit.core.contracts.types import Block, Message, NativeBlock, TextBlock, ThinkingBlock, ToolCall
from agentkit.models.adapters.anthropic import AnthropicLLM
from agentkit.models.adapters.gemini import GeminiLLM
from agentkit.models.adapters.openai_chat import OpenAIChatLLM
from agentkit.models.adapters.openai_responses import OpenAIResponsesLLM
from agentkit.models.wire import anthropic, gemini, openai_chat, openai_responses

GEMINI = ToolCall("g", "look", {}, meta={"thoughtSignature": "c2ln"})
RESPONSES = openai_responses.read_call(
    {"type": "function_call", "id": "fc_1", "call_id": "r", "name": "look", "arguments": "{}", "caller": {"type": "x"}}
)
CLAUDE = ToolCall("c", "look", {}, meta={"caller": {"type": "direct"}, "toolset_name": "tools"})
CALLS = {"gemini": GEMINI, "responses": RESPONSES, "anthropic": CLAUDE}


@pytest.mark.parametrize("source", CALLS)
def test_calls_bear_nothing_of_another_provider(source: str) -> None:
    call = CALLS[source]
    message = Message("assistant", "", tool_calls=[call])
    item = openai_responses.render_items([message], openai_responses.ItemForm(True, False))[-1]
    plain: dict[str, Any] = {"type": "function_call", "call_id": call.id, "name": "look", "arguments": "{}"}
    assert (item == plain) is (source != "responses")
    block = anthropic.render_messages([message])[0]["content"][-1]
    assert (block.keys() == {"type", "id", "name", "input"}) is (source != "anthropic")
    part = gemini.render_contents([message])[0]["parts"][-1]
    assert (part.keys() == {"functionCall"}) is (source != "gemini")
    assert openai_chat.render_messages([message])[0]["tool_calls"] == [
        {"id": call.id, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    ]


def test_calls_of_another_model_bear_a_waiver_for_newer_geminis() -> None:
    """Gemini 3 refuses calls of the current turn without a signature, and names one for calls that are not its own."""
    own = Message("assistant", "", tool_calls=[GEMINI, CLAUDE])
    other = Message("assistant", "", tool_calls=[CLAUDE, RESPONSES])
    results = [Message("tool", "sun", tool_call_id=call.id) for call in (CLAUDE, RESPONSES)]
    request = ChatRequest((Message("user", "x"), own, Message("user", "x"), other, *results))
    for model, waived in (("gemini-2.5-pro", False), ("gemini-3-flash-preview", True)):
        contents = GeminiLLM(None, model=model).body(request)["contents"]
        found = [[part.get("thoughtSignature") for part in one["parts"]] for one in contents if one["role"] == "model"]
        assert found[0] == ["c2ln", None]
        assert [signature is not None for signature in found[1]] == [waived, False]


def test_calls_without_a_signature_are_rendered_once_for_newer_geminis() -> None:
    """K4: a waiver is put on a message once, not with each request."""
    said = Message("assistant", "I look.", tool_calls=[CLAUDE, RESPONSES])
    results = [Message("tool", "sun", tool_call_id=call.id) for call in (CLAUDE, RESPONSES)]
    llm, request = GeminiLLM(None, model="gemini-3-flash-preview"), ChatRequest((Message("user", "x"), said, *results))
    longer = replace(request, messages=(*request.messages, Message("assistant", "Sun."), Message("user", "y")))
    first, second = (llm.body(each)["contents"][1]["parts"] for each in (request, longer))
    assert "thoughtSignature" in first[1]
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_what_stored_reasoning_led_to_goes_without_its_id_where_the_reasoning_cannot_go() -> None:
    """The provider refuses a stored text by its id alone, `without its required reasoning item`."""
    said = {"type": "output_text", "text": "Sun.", "annotations": []}
    output: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [said]},
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "look", "arguments": "{}"},
    ]
    text, calls, blocks = openai_responses.read_output(output)
    message = Message("assistant", blocks or text, tool_calls=calls)
    kept = openai_responses.render_items([message], openai_responses.ItemForm(stored=True))
    assert kept == output
    bare = openai_responses.render_items([message], openai_responses.ItemForm(stored=False))
    assert [item["type"] for item in bare] == ["message", "function_call"]
    assert not any("id" in item for item in bare)


@pytest.mark.parametrize("blocks", [[], [ThinkingBlock("Hm.", "c2ln")]])
def test_a_started_answer_goes_without_the_blanks_at_its_end(blocks: list[Block]) -> None:
    """The API refuses them there, and only there."""
    started = Message("assistant", [*blocks, TextBlock("It is \n")])
    llm = AnthropicLLM(None, model="claude-haiku-4-5")
    question = Message("user", "How is it? ")
    last = llm.body(ChatRequest((question, started)))["messages"][-1]["content"]
    assert last[-1]["text"] == "It is"
    going_on = llm.body(ChatRequest((question, started, Message("user", "Go on."))))["messages"]
    assert going_on[1]["content"][-1]["text"] == "It is \n"
    assert going_on[0]["content"][0]["text"] == "How is it? "


ODD: dict[str, Any] = {"type": "invented_in_2027", "x": {"b": 1, "a": 2}}


def made_by(source: str) -> Message:
    """What each wire makes of an answer with a block of a kind that nobody knows, and a plain dict of that kind."""
    said: dict[str, Any] = {"type": "text", "text": "Well."}
    if source == "anthropic":
        text, calls, blocks = anthropic.read_content([said, ODD])
    elif source == "chat":
        text, calls, blocks = openai_chat.read_message({"content": [said, ODD]})
    elif source == "responses":
        part = {"type": "output_text", "text": "Well.", "annotations": []}
        text, calls, blocks = openai_responses.read_output(
            [{"type": "message", "role": "assistant", "content": [part]}, ODD]
        )
    elif source == "gemini":
        text, calls, blocks = gemini.read_parts([{"text": "Well."}, ODD], "s")
    else:
        return Message("assistant", [said, ODD])
    return Message("assistant", text, tool_calls=calls, blocks=blocks)


@pytest.mark.parametrize("source", ["anthropic", "chat", "responses", "gemini", "nobody"])
def test_a_block_that_nobody_knows_goes_back_to_its_provider_alone(source: str) -> None:
    """E4: verbatim to whom it came from, to no other, and to nobody where that is not known; the record keeps it."""
    message = made_by(source)
    assert [block.payload for block in message.blocks if isinstance(block, NativeBlock)] == [ODD]
    request = ChatRequest((Message("user", "x"), message, Message("user", "y")), "m")
    bodies = {
        "anthropic": AnthropicLLM(None).body(request),
        "chat": OpenAIChatLLM(None).body(request),
        "mistral": OpenAIChatLLM(None, provider="mistral").body(request),
        "responses": OpenAIResponsesLLM(None).body(request),
        "gemini": GeminiLLM(None).body(request),
    }
    shown = [name for name, body in bodies.items() if json.dumps(ODD) in json.dumps(body)]
    # A chat completion has no place for further kinds of parts.
    assert shown == ([] if source in ("chat", "nobody") else [source])
    assert not [name for name, body in bodies.items() if ODD["type"] in json.dumps(body) and name not in shown]
